// Package pyfork starts a Python that has Salt's library, the parent, which forks workers on order.
// A worker starts in some milliseconds: its modules are already imported.
//
// The parent is confined: isolated from code that is not its own (-I), in the root directory and a
// process group of its own, and the first to be killed when memory is short. It gets its program
// and its settings through its standard input, so that they do not appear on a command line, and
// its orders on a socket of whole messages. It has no threads, since a fork would leave them
// behind. It and its workers log line by line.
//
// The program defines the work of a parent and its workers: templates
// (master/internal/pillar/renderer), functions of runners (master/pyhost).
package pyfork
