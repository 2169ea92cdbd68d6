// Package pyhost runs tasks in Python with Salt's library. Each task runs in its own process, which
// takes only some milliseconds to start: a warm parent ([pyfork]) forks a worker for it.
//
// A task finds no traces of another task: the parent holds only imported modules of the library, and
// a worker ends with its task, together with everything that the task has started, including daemons.
// A worker is bounded in memory and open files, its task in time and in the size of its answer. A
// bounded number of workers run at once; further tasks wait for a place in order of arrival.
//
// The parent starts at the first task, and stops after a time without tasks. A worker checks whether
// files of the library have changed since its parent read them. If so, a new parent starts beside the
// old one, which ends with its last worker. The same happens when the layer of packages changes. When
// a parent dies, the tasks of its workers are lost; a new parent is started for the waiting tasks.
//
// The host gets a program that defines its tasks, such as functions of runners and wheel
// (master/pyrunner).
package pyhost
