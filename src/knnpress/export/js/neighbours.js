const UNSURE = -2; // never the case here

// The NEIGHBOURS nearest prototypes, nearest first; of equal ones the first in the table.
class Votes {
  constructor() {
    this.nearest = [];
    this.own = 0; // what distances are too large by
    this.known = !REJECT; // whether some class has points as far away as this one
  }

  limit() {
    return this.nearest.length < NEIGHBOURS ? Infinity : this.nearest[NEIGHBOURS - 1].distance;
  }

  nearestDistance() {
    return this.nearest.length > 0 ? this.nearest[0].distance : Infinity;
  }

  leaveOpen() {}

  add(prototype, distance) {
    if (REJECT && distance - this.own <= tables.farthest[labels[prototype]]) this.known = true;
    const nearer = (other) => distance < other.distance || (distance === other.distance && prototype < other.prototype);
    let k = this.nearest.length;
    while (k > 0 && nearer(this.nearest[k - 1])) k--;
    this.nearest.splice(k, 0, { distance, prototype, label: labels[prototype] });
    if (this.nearest.length > NEIGHBOURS) this.nearest.pop();
  }

  // The class of most of them, of equal ones that with the nearest; their shares are the probabilities.
  close(probabilities) {
    if (this.nearest.length < NEIGHBOURS || !this.known) return -1;
    const count = new Array(classes.length).fill(0);
    for (const { label } of this.nearest) count[label]++;
    const most = Math.max(...this.nearest.map(({ label }) => count[label]));
    if (probabilities) for (let c = 0; c < classes.length; c++) probabilities[c] = count[c] / NEIGHBOURS;
    return this.nearest.find(({ label }) => count[label] === most).label;
  }
}
