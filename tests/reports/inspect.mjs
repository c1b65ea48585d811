// What is wrong with the plots of the page this runs in, as a list of sentences. Runs inside the browser, so it
// must not use anything from outside itself.
export function inspectPlots() {
  const wrong = [];
  // Pixels by which strokes, markers and rounding may exceed what they belong to.
  const slack = 8;

  const corners = (text) => {
    const b = text.getBBox();
    const m = text.getScreenCTM();
    return [[b.x, b.y], [b.x + b.width, b.y], [b.x + b.width, b.y + b.height], [b.x, b.y + b.height]].map(
      ([x, y]) => new DOMPoint(x, y).matrixTransform(m),
    );
  };
  // Separating axes of two (possibly turned) boxes: they meet unless some edge's normal parts them.
  const meet = (a, b) => {
    for (const box of [a, b]) {
      for (const i of [0, 1]) {
        const n = { x: box[i].y - box[i + 1].y, y: box[i + 1].x - box[i].x };
        const on = (p) => p.x * n.x + p.y * n.y;
        const [pa, pb] = [a.map(on), b.map(on)];
        const gap = 0.5 * Math.hypot(n.x, n.y);
        if (Math.max(...pa) <= Math.min(...pb) + gap || Math.max(...pb) <= Math.min(...pa) + gap) return false;
      }
    }
    return true;
  };

  const figures = [...document.querySelectorAll("figure")];
  for (const figure of figures) {
    const title = figure.querySelector("figcaption").textContent;
    const svg = figure.querySelector("svg.plot");
    const picture = svg.getBoundingClientRect();
    if (picture.width < 100 || picture.height < 60) wrong.push(`${title}: the picture is too small`);

    // Axes where there are any; a heat map's cells are held to the picture.
    const axes = [...svg.querySelectorAll(":scope > .ax")].map((a) => a.getBoundingClientRect());
    const room = axes.length
      ? {
          left: Math.min(...axes.map((a) => a.left)),
          right: Math.max(...axes.map((a) => a.right)),
          top: Math.min(...axes.map((a) => a.top)),
          bottom: Math.max(...axes.map((a) => a.bottom)),
        }
      : picture;
    const marks = [...svg.querySelectorAll(".marks path, .marks rect")].filter((m) => {
      const b = m.getBoundingClientRect();
      return b.width > 0.2 || b.height > 0.2;
    });
    if (!marks.length) wrong.push(`${title}: no marks are drawn`);
    for (const mark of marks) {
      const b = mark.getBoundingClientRect();
      const inside =
        b.left >= room.left - slack && b.right <= room.right + slack &&
        b.top >= room.top - slack && b.bottom <= room.bottom + slack;
      if (!inside) {
        wrong.push(`${title}: a mark is outside its axes`);
        break;
      }
    }

    for (const kind of [".tx", ".ty"]) {
      const labels = [...svg.querySelectorAll(kind)];
      if (!labels.length) wrong.push(`${title}: no labels ${kind}`);
      const boxes = labels.map(corners);
      for (let i = 0; i < boxes.length; i++) {
        for (let k = i + 1; k < boxes.length; k++) {
          if (meet(boxes[i], boxes[k])) {
            wrong.push(`${title}: labels "${labels[i].textContent}" and "${labels[k].textContent}" meet`);
          }
        }
      }
    }
    for (const text of svg.querySelectorAll("text")) {
      const b = text.getBoundingClientRect();
      const across = b.left < picture.left - 1 || b.right > picture.right + 1;
      const along = b.top < picture.top - 1 || b.bottom > picture.bottom + 1;
      if (across || along) {
        wrong.push(`${title}: "${text.textContent}" leaves the picture`);
      }
    }
  }
  return wrong;
}

// Text that is too faint to read on its paper (WCAG AA: 4.5 to 1; 3 to 1 for what is large or bold).
export function inspectText() {
  const wrong = [];
  const rgb = (c) => c.match(/[\d.]+/g).slice(0, 3).map(Number);
  const luminance = (c) => {
    const [r, g, b] = rgb(c).map((v) => (v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [hi, lo] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (hi + 0.05) / (lo + 0.05);
  };
  const paper = getComputedStyle(document.body).backgroundColor;
  for (const element of document.querySelectorAll("p, td, th, dt, dd, figcaption, li, h1, h2, .tk, .at, .lg, .ml")) {
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    if (contrast(ink, paper) < 4.5) wrong.push(`faint: "${element.textContent.slice(0, 40)}" ${ink} on ${paper}`);
  }
  for (const value of document.querySelectorAll(".cv.on-dark, .cv.on-light")) {
    const cell = value.previousElementSibling;
    const [ink, fill] = [getComputedStyle(value).fill, getComputedStyle(cell).fill];
    if (contrast(ink, fill) < 4.5) wrong.push(`faint: "${value.textContent}" ${ink} on ${fill}`);
  }
  return wrong;
}
