// Package fileserver answers the file requests of minions: which files exist, their hashes and
// their content.
//
// A Server combines backends (roots and minionfs; others can be given to New) under Salt's rules
// (salt/fileserver/__init__.py and roots.py of 3008.3) and returns values in wire form. Its methods
// may be called concurrently.
//
// Minions choose the file names in their requests. So the server cleans a name and checks that it
// stays below its root before it accesses a file. It opens only regular files, and opening never
// blocks: a FIFO in the tree is "not found". If fileserver_followsymlinks is off, the kernel
// resolves the name below the root (os.Root). Files that minions push (cp.push) are always written
// through os.Root, with limits per file and per minion.
//
// Lists and hashes are cached in memory. A cached hash is used only while device, inode, size,
// mtime and ctime of the file are unchanged. A cached list is used for ListCacheTime, or until
// Update finds a change.
package fileserver
