// Package fileserver answers the file requests of minions: which files exist, their hashes and
// their content.
//
// A Server combines backends (roots and minionfs; others can be given to New) under Salt's rules
// (salt/fileserver/__init__.py and roots.py of 3008.3) and returns values in wire form. Its methods
// may be called concurrently.
//
// Files are named by minions. Therefore a name is cleaned and must stay below its root before a
// file is touched. Only regular files are opened, and opening never waits: a FIFO in the tree is
// "not found". With fileserver_followsymlinks off the kernel itself resolves the name below the
// root (os.Root). What minions send (cp.push) is always written through os.Root, with limits per
// file and per minion.
//
// Lists and hashes are cached in memory. A hash is reused only while device, inode, size, mtime and
// ctime stay the same, a list for ListCacheTime or until Update sees a change.
package fileserver
