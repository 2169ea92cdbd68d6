// Package pyfork starts a Python process with Salt's library, the parent. On request the parent
// forks workers. A worker starts within some milliseconds, because its modules are already
// imported.
//
// The parent runs isolated (-I), so it imports no code from paths in its environment or from the
// current directory. It runs in the root directory and in its own process group. When memory is
// short, the kernel kills it before the master. The parent reads its program and its settings from
// standard input, so that they do not appear on a command line, and its orders from a socket that
// preserves message boundaries. It has no threads, because a fork would not copy them. The parent
// and its workers write their log line by line.
//
// The program defines what the parent and its workers do: render templates
// (master/internal/pillar/renderer), or run functions of runners (master/pyhost).
package pyfork
