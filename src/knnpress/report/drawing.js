// The pen. It stands behind an exported model, whose `predict`, `classes` and `pointSize` it uses.
{
  const FINE = 32, GRID = 8, PEN = 2; // pixels a side before and after counting; half the width of a stroke
  const figure = document.querySelector("figure.drawing");
  const pad = figure.querySelector(".pad"), seen = figure.querySelector(".seen");
  const answer = figure.querySelector(".answer"), chances = figure.querySelector(".chances");
  let strokes = []; // lists of [x, y], both from 0 to 1
  let drawing = null; // the pointer that draws
  let cursor = null, penDown = false; // of the keyboard

  const bars = classes.map((name) => {
    const item = document.createElement("li"), label = document.createElement("span"), bar = document.createElement("i");
    label.textContent = name;
    item.append(label, bar);
    chances.append(item);
    return bar;
  });

  // The strokes as large as the grid allows, in the middle of it, as the digits of the data are.
  const fitted = () => {
    const all = strokes.flat();
    const [left, top] = [0, 1].map((k) => Math.min(...all.map((p) => p[k])));
    const [right, bottom] = [0, 1].map((k) => Math.max(...all.map((p) => p[k])));
    const scale = (FINE - 2 * PEN) / Math.max(right - left, bottom - top, 0.2); // a dot stays a dot
    const move = (p) => [FINE / 2 + scale * (p[0] - (left + right) / 2), FINE / 2 + scale * (p[1] - (top + bottom) / 2)];
    return strokes.map((stroke) => stroke.map(move));
  };

  const distance = (x, y, [ax, ay], [bx, by]) => {
    const [dx, dy] = [bx - ax, by - ay], length = dx * dx + dy * dy;
    const t = length > 0 ? Math.min(1, Math.max(0, ((x - ax) * dx + (y - ay) * dy) / length)) : 0;
    return Math.hypot(x - ax - t * dx, y - ay - t * dy);
  };

  // How many fine pixels of each square have ink: 0 to 16.
  const counts = () => {
    const found = new Array(GRID * GRID).fill(0), step = FINE / GRID, lines = fitted();
    for (let row = 0; row < FINE; row++)
      for (let column = 0; column < FINE; column++) {
        const near = (stroke) => stroke.some((p, k) => distance(column + 0.5, row + 0.5, p, stroke[k + 1] ?? p) <= PEN);
        if (lines.some(near)) found[Math.floor(row / step) * GRID + Math.floor(column / step)]++;
      }
    return found;
  };

  const say = () => {
    const ink = strokes.length ? counts() : new Array(GRID * GRID).fill(0);
    const probabilities = new Array(classes.length).fill(0);
    const best = strokes.length ? predict(ink, probabilities) : -1;
    const share = Math.round(100 * probabilities[best]);
    answer.textContent = best < 0 ? "Draw one large digit." : `Looks like ${classes[best]}, ${share} % sure.`;
    figure.dataset.answer = best < 0 ? "" : classes[best];
    figure.dataset.ink = ink.join(" ");
    bars.forEach((bar, k) => { bar.style.width = `${100 * probabilities[k]}%`; });
    const context = seen.getContext("2d"), picture = context.createImageData(GRID, GRID);
    ink.forEach((value, k) => picture.data.set([255 - 15 * value, 255 - 15 * value, 255 - 15 * value, 255], 4 * k));
    context.putImageData(picture, 0, 0);
  };

  const paint = () => {
    const context = pad.getContext("2d"), size = pad.width;
    context.fillStyle = "#ffffff";
    context.fillRect(0, 0, size, size);
    context.strokeStyle = "#dddddd";
    context.lineWidth = 1;
    for (let k = 1; k < GRID; k++) {
      const at = Math.round((k * size) / GRID) + 0.5;
      context.stroke(new Path2D(`M${at} 0V${size}M0 ${at}H${size}`));
    }
    context.strokeStyle = "#1c1c22";
    context.lineWidth = (2 * PEN * size) / FINE;
    context.lineCap = context.lineJoin = "round";
    for (const stroke of strokes) {
      const path = stroke.map(([x, y]) => `${x * size} ${y * size}`);
      context.stroke(new Path2D(`M${path.join("L")}L${path[path.length - 1]}`));
    }
    if (cursor) {
      context.fillStyle = penDown ? "#1d4fd7" : "#1d4fd766";
      context.fillRect(cursor[0] * size - 7, cursor[1] * size - 7, 14, 14);
    }
  };

  const at = (event) => {
    const box = pad.getBoundingClientRect();
    const inside = (value) => Math.min(1, Math.max(0, value));
    return [inside((event.clientX - box.left) / box.width), inside((event.clientY - box.top) / box.height)];
  };
  const add = (point) => { strokes[strokes.length - 1].push(point); };
  const show = () => { paint(); say(); };

  pad.addEventListener("pointerdown", (event) => {
    if (drawing !== null || event.button !== 0) return;
    drawing = event.pointerId;
    pad.setPointerCapture(drawing);
    cursor = null;
    strokes.push([at(event)]);
    show();
  });
  pad.addEventListener("pointermove", (event) => {
    if (event.pointerId !== drawing) return;
    add(at(event));
    show();
  });
  const lift = (event) => { if (event.pointerId === drawing) drawing = null; };
  pad.addEventListener("pointerup", lift);
  pad.addEventListener("pointercancel", lift);
  pad.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!step && event.key !== " ") return;
    event.preventDefault();
    const middle = 0.5 / GRID;
    if (step) {
      const [x, y] = cursor ?? [0.5 - middle, 0.5 - middle];
      cursor = [x + step[0] / GRID, y + step[1] / GRID].map((v) => Math.min(1 - middle, Math.max(middle, v)));
      if (penDown) add(cursor);
    } else {
      cursor ??= [0.5 - middle, 0.5 - middle];
      penDown = !penDown;
      if (penDown) strokes.push([cursor]);
    }
    show();
  });
  figure.querySelector(".clear").addEventListener("click", () => {
    strokes = [];
    cursor = null;
    penDown = false;
    show();
  });
  figure.hidden = false;
  show();
}
