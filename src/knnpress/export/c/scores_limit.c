
/* What a distance need not be known above: one that changes neither the best class nor, where they are asked for, the
   probabilities. */
static double kp_limit(const kp_votes *votes) {
  const double reach = votes->certain ? KP_FAR_REACH : KP_REACH;
  return votes->best >= -DBL_MAX ? reach - votes->best / KP_SHARPNESS : DBL_MAX;
}
