const UNSURE = -2;

// Log-odds of each class: of its nearest prototype, or (SOFT) the logarithm of a sum over all of its prototypes.
class Votes {
  constructor(certain) { // certain: probabilities are wanted
    this.top = new Array(classes.length).fill(-Infinity);
    this.sum = new Array(classes.length).fill(0);
    this.open = 0; // what distances that were not solved for may have added too much
    this.best = -Infinity;
    this.certain = certain;
    this.own = 0; // what distances are too large by
    this.known = !REJECT; // whether some class has points as far away as this one
  }

  // What a distance need not be known above. Where all prototypes of a class count and only the best class is asked for,
  // that is a guess, which close judges.
  limit() {
    return this.best === -Infinity ? Infinity : (this.certain ? FAR_REACH : REACH) - this.best / SHARPNESS;
  }

  nearestDistance() {
    return -this.best / SHARPNESS;
  }

  add(prototype, distance) {
    const score = -SHARPNESS * distance, label = labels[prototype], top = this.top[label];
    if (REJECT && distance - this.own <= tables.farthest[label]) this.known = true;
    if (!Number.isFinite(score)) return;
    if (SOFT) this.sum[label] = score > top ? this.sum[label] * Math.exp(top - score) + 1 : this.sum[label] + Math.exp(score - top);
    this.top[label] = Math.max(top, score);
    this.best = Math.max(this.best, score);
  }

  // The last vote was of a distance that is only known to be at least this.
  leaveOpen(distance) {
    if (SOFT) this.open += Math.exp(-SHARPNESS * distance - this.best);
  }

  close(probabilities) {
    if (this.best === -Infinity || !this.known) return -1;
    const score = this.top.map((top, c) => (SOFT && this.sum[c] > 0 ? top + Math.log(this.sum[c]) : top));
    let winner = 0, total = 0;
    for (let c = 0; c < classes.length; c++) if (score[c] > score[winner]) winner = c;
    const share = (c) => Math.exp(score[c] - this.best);
    if (!this.certain && this.open > 0 && score.some((_, c) => c !== winner && share(c) >= share(winner) - this.open)) {
      return UNSURE;
    }
    if (probabilities) {
      for (let c = 0; c < classes.length; c++) {
        probabilities[c] = score[c] === -Infinity ? 0 : Math.exp(TEMPERATURE * (score[c] - score[winner]));
        total += probabilities[c];
      }
      for (let c = 0; c < classes.length; c++) probabilities[c] /= total;
    }
    return winner;
  }
}
