const prepare = histogram;

// K' weights, over the bins listed.
function product(kernel, weights, bins, sums) {
  sums.fill(0);
  for (const k of bins) for (let i = 0, at = k * WIDTH; i < D; i++) sums[i] += weights[k] * kernel[at + i];
}

// A half-step: scaling = 1 / sums; `relaxed` goes beyond it by a share `relax` of the step. Returns the L1 error of the
// marginal before.
function halfStep(mass, bins, sums, relax, side) {
  let error = 0;
  for (const k of bins) {
    const ratio = Math.min(side.relaxed[k] * sums[k], 1e100);
    side.scaling[k] = 1 / sums[k];
    side.relaxed[k] = side.scaling[k] * (1 + relax * (1 - Math.min(Math.max(ratio, 0.5), 1.5)));
    side.weights[k] = mass[k] * side.relaxed[k];
    error += mass[k] * Math.abs(ratio - 1);
  }
  return error;
}

function dual(a, binsX, x, b, binsZ, z) {
  let value = 0;
  for (const k of binsX) value += a[k] * Math.log(x[k]);
  for (const k of binsZ) value += b[k] * Math.log(z[k]);
  return REG * value;
}

// <T, M> of the plan T = x K z, rounded to the marginals (Altschuler, Weed, Rigollet 2017): columns too heavy are scaled
// down, and what is then missing is sent between rows and columns in proportion. Rows are as they should be.
function rounded(a, binsX, x, b, binsZ, z) {
  const leftA = new Float64Array(D), leftB = new Float64Array(D), factor = new Float64Array(D);
  let paid = 0, rest = 0, missing = 0;
  for (const j of binsZ) {
    let sum = 0;
    for (const i of binsX) sum += a[i] * x[i] * tables.kernel[i * WIDTH + j];
    sum *= b[j] * z[j];
    factor[j] = sum > b[j] ? b[j] / sum : 1;
    leftB[j] = Math.max(b[j] - factor[j] * sum, 0);
  }
  for (const i of binsX) {
    let sum = 0;
    for (const j of binsZ) {
      const mass = a[i] * x[i] * tables.kernel[i * WIDTH + j] * b[j] * z[j] * factor[j];
      sum += mass;
      paid += mass * tables.cost[i * D + j];
    }
    leftA[i] = Math.max(a[i] - sum, 0);
    missing += leftA[i];
  }
  for (const i of binsX) for (const j of binsZ) rest += leftA[i] * leftB[j] * tables.cost[i * D + j];
  return missing > 0 ? paid + rest / missing : paid;
}

// Entropic transport by over-relaxed scaling: at most MAX_ITER iterations, until the L1 error of the marginals is below
// TOL. Any scalings give a value that is not above the solved one: it is given up once known to be above `limit`. A value
// above `nearest` weighs less, by exp(-2 LOOSEN (value - nearest)) or more, and its error may be larger: half as much in
// logarithms, so that none counts for more than that of the nearest.
function transport(a, binsX, b, binsZ, nearest, limit) {
  const kernelT = ASYMMETRIC ? tables.kernel_t : tables.kernel, sums = new Float64Array(D);
  const side = (mass) => ({ scaling: new Float64Array(D), relaxed: new Float64Array(D).fill(1), weights: Float64Array.from(mass) });
  const x = side(a), z = side(b);
  let amount = RELAX, last = 0, relax = 0, tol = TOL, seen = -Infinity;
  for (let step = 1; ; step++) {
    product(tables.kernel, x.weights, binsX, sums);
    const other = halfStep(b, binsZ, sums, relax, z);
    product(kernelT, z.weights, binsZ, sums);
    let error = halfStep(a, binsX, sums, relax, x);
    if (relax > 0 && other > error) error = other;
    if (!(error >= tol) || step >= MAX_ITER) break;
    if (limit < Infinity && (step & (step - 1)) === 0) { // logarithms are dear: looked at ever more rarely
      const value = dual(a, binsX, x.scaling, b, binsZ, z.relaxed);
      if (value > limit) break;
      tol = Math.min(Math.max(TOL * Math.exp(LOOSEN * (value - nearest)), TOL), LOOSEST);
      if (limit - value > 3 * (value - seen)) limit = Infinity; // it will hardly get there
      seen = value;
    }
    if (step % 8 === 0) { // how far to overshoot, from how fast the error falls
      const rate = (error / last) ** 0.125;
      if (step > 8 && !(rate < 1)) {
        amount *= 0.5;
      } else if (step > 8 && rate > amount + 1e-3) {
        const q = Math.min((rate + amount) ** 2 / (rate * (1 + amount) ** 2), 0.9999);
        const best = 2 / (1 + Math.sqrt(1 - q)) - 1;
        if (best > amount) amount = Math.min(best, 0.95);
      }
      last = error;
    }
    relax = amount;
  }
  return (TRANSPORT ? rounded : dual)(a, binsX, x.scaling, b, binsZ, z.relaxed);
}

// The prototype to begin with, so that others are soon known to be too far: the nearest, bin by bin.
function firstOf(a) {
  let least = Infinity, first = 0;
  for (let j = 0; j < M; j++) {
    let sum = 0;
    for (let k = 0; k < D; k++) sum += (a[k] - tables.histograms[j * D + k]) ** 2;
    if (sum < least) [least, first] = [sum, j];
  }
  return first;
}

// The query's own term of the divergence is the same for all prototypes; it is left out but where points are rejected.
function compare(a, votes) {
  const binsOf = (mass) => [...mass.keys()].filter((k) => mass[k] > 0), binsX = binsOf(a);
  if (REJECT && DEBIASED) votes.own = 0.5 * transport(a, binsX, a, binsX, Infinity, Infinity);
  const first = firstOf(a);
  for (let i = 0; i < M; i++) {
    const j = i === 0 ? first : i <= first ? i - 1 : i;
    const b = tables.histograms.subarray(j * D, (j + 1) * D), self = TRANSPORT ? 0 : tables.self[j];
    const nearest = TRANSPORT ? Infinity : votes.nearestDistance();
    let limit = TRANSPORT ? Infinity : votes.limit();
    if (REJECT) limit = Math.max(limit, tables.farthest[labels[j]] + votes.own);
    const distance = transport(a, binsX, b, binsOf(b), nearest + self, limit + self) - self;
    votes.add(j, distance);
    if (distance > limit) votes.leaveOpen(distance);
  }
}
