// Package pyfork starts a Python process with Salt's library, the parent, which forks workers on
// order. A worker starts within some milliseconds, because its modules are already imported.
//
// The parent is isolated from code that is not its own (-I). It runs in the root directory and in its
// own process group, and the kernel kills it first when memory is short. It gets its program and its
// settings through standard input, so that they do not appear on a command line, and its orders on a
// socket of whole messages. It has no threads, because a fork would not copy them. The parent and its
// workers log line by line.
//
// The program defines what the parent and its workers do: render templates
// (master/internal/pillar/renderer), or run functions of runners (master/pyhost).
package pyfork
