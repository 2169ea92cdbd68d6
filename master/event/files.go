package event

// TagOldFiles says that a minion is served files of before: what is new on the shared
// volume could not be copied to the node that serves it. The data has id (the minion),
// node, as_of (of when its files are; empty: not known) and why.
const TagOldFiles = "master/files/old"

// OldFilesOfRun is the last part of the tag of the same event about a runner, below
// salt/run/<jid>. It has no id.
const OldFilesOfRun = "old_files"
