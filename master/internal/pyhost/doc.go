// Package pyhost runs tasks in Python with Salt's library. Each task runs in its own process.
// Starting that process takes only some milliseconds, because a running parent process ([pyfork])
// forks it.
//
// A task cannot see data of another task: the parent holds only imported modules of the library,
// and a worker ends with its task, together with all processes that the task has started, including
// daemons. A worker's memory and open files are bounded, and so are the time of its task and the
// size of its answer. A bounded number of workers run at once; further tasks wait for a slot in
// order of arrival.
//
// The parent starts at the first task, and stops after a time without tasks. A worker checks
// whether files of the library have changed since its parent read them. If so, a new parent starts,
// and the old parent ends with its last worker. The same happens when the layer of packages
// changes. When a parent dies, the tasks of its workers are lost; a new parent starts for the
// waiting tasks.
//
// The caller passes a Python program that defines the tasks, such as calls of runner and wheel
// functions (master/pyrunner).
package pyhost
