// Package pyfork starts a Python that has Salt's library, the parent, which forks
// workers when it is told to. A worker comes to life in some milliseconds: what it needs
// is imported.
//
// The parent is confined: isolated from code that is not its own (-I), in the root
// directory and a process group of its own, and the first to go when memory is short. It
// gets its program and its settings through its standard input, so that nothing of them
// is on a command line, and its orders on a socket of whole messages. It has no threads,
// since a fork would leave them behind. What it and its workers log comes line by line.
//
// What a parent and its workers do is the program's business: templates
// (master/internal/pillar/renderer), functions of runners (master/pyhost).
package pyfork
