package fileserver

import (
	"io/fs"
	"syscall"

	"saltern/master/value"
)

// Stat is Python's os.stat as a list: mode, inode, device, links, uid, gid,
// size, and the times of access, modification and change in whole seconds.
type Stat [10]int64

// List returns the stat in the form that is sent to minions.
func (s Stat) List() []any { return value.List(s[:]) }

func statOf(fi fs.FileInfo) Stat {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return Stat{6: fi.Size(), 8: fi.ModTime().Unix()}
	}
	return Stat{int64(st.Mode), int64(st.Ino), int64(st.Dev), int64(st.Nlink), int64(st.Uid), int64(st.Gid),
		st.Size, st.Atim.Sec, st.Mtim.Sec, st.Ctim.Sec}
}
