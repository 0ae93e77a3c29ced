// Applies the experimenter's colours and sizes; text is black or white, whichever contrasts more.

export function applyAppearance({ background, stimulus_size: size }) {
  const root = document.documentElement;
  root.style.setProperty("--background", background);
  if (size === "fill") root.style.removeProperty("--stimulus");
  else root.style.setProperty("--stimulus", size);
  root.classList.toggle("dark", isDark(getComputedStyle(document.body).backgroundColor));
}

/** Whether white text contrasts more than black on this colour (relative luminance, WCAG 2). */
export function isDark(colour) {
  const [red, green, blue] = (colour.match(/\d+(\.\d+)?/g) ?? [255, 255, 255]).map((part) => {
    const share = Number(part) / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue < 0.179;
}
