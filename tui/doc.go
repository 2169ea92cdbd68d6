// Package tui draws what an administrator sees on a console: the first-boot wizard and, after the
// set-up, the console page. Both talk to the supervisor through its local API. They decide nothing
// and change nothing on the machine themselves.
//
// Screens suit the poorest terminal: 80 columns, 24 rows, a vt220 without colour, ASCII only, which
// does not answer questions about itself. Text from outside (names, causes, answers of peers) loses
// its control characters before it is drawn.
package tui
