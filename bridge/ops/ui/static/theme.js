// Runs before the first paint, so that the page does not flash in the wrong
// colours. Without the reader's choice, the system's setting applies.
const theme = localStorage.getItem('theme');
if (theme === 'light' || theme === 'dark') document.documentElement.dataset.theme = theme;
