/* What a distance need not be known above: one that changes neither the best class nor, where they are asked for, the
   probabilities. Where all prototypes of a class count, that of the best class is a guess, which kp_close judges. */
static double kp_limit(const kp_votes *votes) {
  const double reach = votes->certain ? KP_FAR_REACH : KP_REACH;
  return votes->best >= -DBL_MAX ? reach - votes->best / KP_SHARPNESS : HUGE_VAL;
}

static double kp_nearest(const kp_votes *votes) {
  return -votes->best / KP_SHARPNESS;
}

#ifdef KP_SOFT
/* The last vote was of a distance that is only known to be at least this. */
static void kp_leave_open(kp_votes *votes, double distance) {
  votes->open += exp(-KP_SHARPNESS * distance - votes->best);
}
#endif
