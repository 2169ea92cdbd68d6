// Package fleet keeps the last run of each minion, tells drift from change, and answers questions
// about all minions over time.
//
//	jobs.Local, its background writer ── return ──> Recorder.Add
//	                                                  summary.OfPacked: result, counts, states
//	                                                  Table.compare: the cause of each change
//	                                                  ├─> Store.Append: history of all runs
//	                                                  └─> Table: the last run of each minion
//
// Every master of a cluster commits every return, so every master has the same table and history.
//
// Drift: two runs of the same states (the same function and arguments) on one minion are compared.
// If the minion was served the same revision of the files in both, something else had changed on
// the minion what the second run changes: drift. The master that takes a return puts the revision
// into it ([Revisions]), so that all masters compare the same.
//
// A master that was away hears of runs in another order than the others: of a run before its job, or
// before the run that it is compared with. It then amends the history, so that it says the same (settle.go).
//
// The caller calls Recorder.Sync before its journal forgets returns. Sync saves the table. After a
// crash the journal adds again what the saved table lacks. Without a saved table, New makes the
// table from the history.
//
// Bounds: maxMinions entries of at most maxEntry bytes; a further minion displaces the one that has not
// answered for the longest time. Answers to questions read at most maxRead runs of the history.
package fleet
