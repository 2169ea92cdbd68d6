// Package tui draws the pages that an administrator sees on a console: the first-boot wizard and,
// after the set-up, the console page. Both use the supervisor's local API. They decide nothing and
// change nothing on the machine themselves.
//
// Screens suit the most limited terminal: 80 columns, 24 rows, a vt220 without colour, ASCII only,
// which answers no queries about itself. Control characters are removed from untrusted text (names,
// causes, answers of peers) before it is drawn.
package tui
