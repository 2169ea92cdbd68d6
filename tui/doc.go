// Package tui is what an administrator sees on a console: the first-boot
// wizard and, after the set-up, the console page. Both only ask and tell the
// supervisor through its local API; nothing is decided here, and nothing is
// changed on the machine.
//
// Screens are made for the poorest terminal: 80 columns, 24 rows, a vt220
// without colour, ASCII only, no answers to questions about itself. Text that
// came from outside (names, causes, answers of peers) is cleaned of control
// characters before it is drawn.
package tui
