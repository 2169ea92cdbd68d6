// Package memo stores the results of pillar templates. A minion gets the result that was rendered
// for another minion if everything that the template read is the same for both
// (saltern_pillar_memo).
//
// A result depends on the text of the SLS, on the inputs of the request, and on what the template
// reads: values in grains and pillar, identified by their paths, and imported files. The renderer
// reports what a template read, or why it cannot report that (renderer/reads.py). The Store holds
// the paths that were read and, by a hash of the values at these paths, the result. It holds no
// grains of any minion. A minion gets a result if the values at these paths in its own grains and
// pillar have the same hash, which covers their order and types, and if every imported file has the
// same content.
//
// Values from the Store are shared and must not be changed, like those of plain files in package
// pillar. The number and the total size of the results are bounded. Overflow policy: the least
// recently used result is dropped.
package memo
