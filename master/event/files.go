package event

// TagOldFiles is the tag of the event which reports that minions get outdated files. The reason is
// that new files on the shared volume could not be copied to the node that serves the minions. The
// data has the fields minions (1,000 at most), id (the first of these minions), node, as_of (the
// time up to which the served files are current, empty if unknown) and why.
const TagOldFiles = "master/files/old"

// OldFilesOfRun is the last part of the tag salt/run/<jid>/old_files. An event with that tag
// reports that a runner reads outdated files; its data has no id.
const OldFilesOfRun = "old_files"
