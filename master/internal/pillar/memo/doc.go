// Package memo keeps what pillar templates were rendered to, for minions for
// which everything that a template read is the same (saltern_pillar_memo).
//
// A rendering is a function of the text of the SLS, of what the request gives
// it, and of what it reads: values of grains and of the pillar by their path,
// and files that it imports. The renderer notes these reads, or says why it
// cannot (renderer/reads.py). The Store knows the paths that were read and,
// by a hash of the values that were there, the result; it has no grains of
// any minion. A minion is given a result if the values of its own grains and
// pillar at the same paths hash to the same, with their order and types, and
// if every file has the same content.
//
// Values that the Store gives are shared and must not be changed, as those of
// plain files of package pillar. Its size is bounded in results and in bytes;
// the result that was not used for the longest time makes room.
package memo
