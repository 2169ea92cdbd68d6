package event

// TagOldFiles says that a minion is served files of before: what is new on the shared
// volume could not be copied to the node that serves it. The data has id (the minion),
// node, as_of (of when its files are; empty: not known) and why.
const TagOldFiles = "master/files/old"
