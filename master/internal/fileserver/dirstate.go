package fileserver

import (
	"io/fs"
	"os"
	"time"

	"saltern/master/internal/fileserver/regular"
)

// dirState is the state of a directory when it was listed. If an entry is created, renamed or
// removed, the directory's times change.
type dirState struct {
	path  string
	there bool
	id    regular.ID
}

// noteDir adds the state of a directory to the listing. fi may be nil: the directory does not
// exist.
func (l *Listing) noteDir(dir string, fi fs.FileInfo) {
	d := dirState{path: dir}
	if fi != nil {
		d.id, d.there = regular.IDOf(fi)
	}
	l.dirs = append(l.dirs, d)
}

// stateOr returns fi, or nil if err is not nil.
func stateOr(fi fs.FileInfo, err error) fs.FileInfo {
	if err != nil {
		return nil
	}
	return fi
}

// settledDirs returns dirs, the directories of a walk. It returns nil if one of them changed so
// shortly before the walk that its times may not show the next change.
func settledDirs(dirs []dirState, begun time.Time) []dirState {
	for _, d := range dirs {
		if d.there && begun.UnixNano()-d.id.Newest() <= int64(settled) {
			return nil
		}
	}
	return dirs
}

// unchanged reports whether the states of the directories are known and still the same.
func unchanged(dirs []dirState) bool {
	for _, d := range dirs {
		fi, err := os.Stat(d.path)
		there := err == nil
		if there != d.there {
			return false
		}
		if !there {
			continue
		}

		if id, ok := regular.IDOf(fi); !ok || id != d.id {
			return false
		}
	}

	return len(dirs) > 0
}
