package event

// TagOldFiles reports that minions get outdated files: new files on the shared volume could not be
// copied to the node that serves them. The data has the fields minions (1,000 at most), id (the
// first of them), node, as_of (the time up to which the served files are current, empty if unknown)
// and why.
const TagOldFiles = "master/files/old"

// OldFilesOfRun ends the tag salt/run/<jid>/old_files of the same event about a runner. The data of
// that event has no id.
const OldFilesOfRun = "old_files"
