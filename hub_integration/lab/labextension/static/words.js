/* Numbers as people read them. No DOM and no JupyterLab here. */

/* "7", "2.1": GiB with one decimal where it says something. */
export function gib(mib) {
  const value = Math.round((mib / 1024) * 10) / 10;
  return String(value);
}

/* "2.1 / 7 GiB"; for a slice of several cards their sum. */
export function usage(cards) {
  const used = cards.reduce((sum, card) => sum + card.used_mib, 0);
  const limit = cards.reduce((sum, card) => sum + card.limit_mib, 0);
  return `${gib(used)} / ${gib(limit)} GiB`;
}

/* "T4", "2 × T4", "T4 + A10". */
export function models(cards) {
  const counts = new Map();
  for (const card of cards) counts.set(card.model, (counts.get(card.model) || 0) + 1);
  return [...counts].map(([model, count]) => (count > 1 ? `${count} × ${model}` : model)).join(" + ");
}

/* "40 s", "12 min", "2 h 5 min". */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.round(whole / 60);
  if (minutes < 60) return `${minutes} min`;
  const rest = minutes % 60;
  return rest ? `${Math.floor(minutes / 60)} h ${rest} min` : `${minutes / 60} h`;
}

/* Seconds from now until a time of the server; null where it ends at no known time. */
export function secondsLeft(time, now) {
  if (!time || !time.ends_at) return null;
  return (Date.parse(time.ends_at) - now) / 1000;
}

export function over(cards) {
  return cards.some((card) => card.over_since !== null);
}
