// Package pyhost does tasks in Python with Salt's library, each in a process of its own
// that costs some milliseconds: a warm parent ([pyfork]) forks a worker for it.
//
// A task finds nothing that another one has left: the parent holds imported modules of
// the library only, and a worker ends with its task, with all that the task has started,
// daemons included. A worker is bounded in memory and open files, its task in time and in
// what it answers. Only so many work at once; others wait for a place in their order.
//
// The parent is started with the first task, and stopped when there was none for a time.
// A worker finds out whether files of the library have changed since its parent read
// them. Then a new parent is started beside the old one, which ends with its last
// worker; so it is with another layer of packages. A parent that dies takes the tasks of
// its workers with it; a new one is started for those that wait.
//
// What tasks are is the business of the program that the host is given: functions of
// runners and wheel (master/pyrunner).
package pyhost
