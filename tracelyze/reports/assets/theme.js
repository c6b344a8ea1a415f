(() => {
  // Runs before the first paint, so that a chosen theme does not flash. A sandboxed page has no storage.
  let theme = new URLSearchParams(location.search).get("theme");
  try { theme ||= localStorage.getItem("tracelyze-theme"); } catch { /* no storage here */ }
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
})();
