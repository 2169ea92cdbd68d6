// Package pyhost runs tasks in Python with Salt's library, each in a process of its own that costs
// some milliseconds: a warm parent ([pyfork]) forks a worker for it.
//
// A task finds no remains of another one: the parent holds only imported modules of the library,
// and a worker ends with its task, together with everything that the task has started, daemons
// included. A worker is bounded in memory and open files, its task in time and in the size of its
// answer. Only so many work at once; others wait for a place in their order.
//
// The parent is started with the first task, and stopped after a time without tasks. A worker
// checks whether files of the library have changed since its parent read them. Then a new parent is
// started beside the old one, which ends with its last worker. The same happens with another layer
// of packages. When a parent dies, so do the tasks of its workers; a new one is started for the
// waiting tasks.
//
// The host gets a program that defines its tasks: functions of runners and wheel (master/pyrunner).
package pyhost
