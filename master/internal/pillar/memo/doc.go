// Package memo stores the results of pillar templates. A minion gets the result of another one if
// everything that the template read is the same for both (saltern_pillar_memo).
//
// A result depends on the text of the SLS, on the inputs of the request, and on what the template
// reads: values of grains and pillar by their paths, and imported files. The renderer reports these
// reads, or why it cannot (renderer/reads.py). The Store holds the paths that were read and, under a
// hash of the values at these paths, the result. It holds no grains of any minion. A minion gets a
// result if the values of its own grains and pillar at the same paths have the same hash, including
// order and types, and if every file has the same content.
//
// Values from the Store are shared and must not be changed, like those of plain files in package
// pillar. The Store is bounded in results and in bytes. Overflow policy: the result that was unused
// for the longest time is dropped.
package memo
