// Package memo keeps the results of pillar templates, for minions for which everything that a
// template read is the same (saltern_pillar_memo).
//
// A result is a function of the text of the SLS, of the inputs of the request, and of what the
// template reads: values of grains and of the pillar by their path, and imported files. The
// renderer notes these reads, or says why it cannot (renderer/reads.py). The Store holds the paths
// that were read and, by a hash of the values there, the result. It holds no grains of any minion.
// A minion gets a result if the values of its own grains and pillar at the same paths have the same
// hash, order and types included, and if every file has the same content.
//
// Values from the Store are shared and must not be changed, like those of plain files of package
// pillar. The Store is bounded in results and in bytes. Overflow policy: the result that was unused
// for the longest time makes room.
package memo
