package jobs

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"

	"saltern/master/crypt"
	"saltern/master/internal/datafile"
)

// File names of Salt's layout (salt/returners/local_cache.py).
const (
	jidFile     = "jid"
	loadFile    = ".load.p"
	minionsFile = ".minions.p"
	nocacheFile = "nocache"
	endtimeFile = "endtime"
	returnFile  = "return.p"
	outFile     = "out.p"
	// tempFile is the name that a file has before its final name. Only one
	// goroutine at a time creates such files.
	tempFile = ".tmp"
)

// maxFile bounds a file to be read, in bytes.
const maxFile = 256 << 20

// layout computes the paths of jobs. It has no state.
type layout struct {
	dir  string
	hash func() hash.Hash
}

func newLayout(dir, hashType string) (layout, error) {
	l := layout{dir: dir, hash: crypt.Hash(cmp.Or(hashType, "sha256"))}
	if l.hash == nil {
		return l, fmt.Errorf("jobs: hash_type %q is not known", hashType)
	}
	return l, nil
}

// jobDir returns the directory of a job.
func (l layout) jobDir(jid string) string {
	sum := l.hash()
	sum.Write([]byte(jid))
	h := hex.EncodeToString(sum.Sum(nil))
	return l.dir + "/" + h[:2] + "/" + h[2:]
}

// Folder returns the folder of a job below dir, the folder of all jobs (salt/utils/jid.py jid_dir).
// If hashType is "", it means sha256.
func Folder(dir, hashType, jid string) (string, error) {
	l, err := newLayout(dir, hashType)
	if err == nil {
		err = checkJID(jid)
	}
	if err != nil {
		return "", err
	}
	return l.jobDir(jid), nil
}

// MakeFolder returns the same as [Folder], and makes the folder with its jid file, as Salt does (local_cache.prep_jid):
// Salt's clean_old_jobs removes a folder without one at once. The folder and the file get these modes, less the umask.
func MakeFolder(dir, hashType, jid string, dirMode, fileMode fs.FileMode) (string, error) {
	folder, err := Folder(dir, hashType, jid)
	if err != nil || isMarked(folder) {
		return folder, err
	}
	if err := os.MkdirAll(folder, dirMode); err != nil {
		return "", err
	}
	return folder, os.WriteFile(folder+"/"+jidFile, []byte(jid), fileMode)
}

// isMarked reports whether a folder has a jid file. One that a crash has left empty does not count.
func isMarked(folder string) bool {
	var st syscall.Stat_t
	return syscall.Stat(folder+"/"+jidFile, &st) == nil && st.Size > 0
}

// checkID returns an error for an id that cannot be a single component of a path, or that could be
// confused with a file of a job.
func checkID(id string) error {
	switch {
	case id == "" || len(id) > 255 || id[0] == '.':
	case strings.ContainsAny(id, "/\\\x00\n"):
	case id == jidFile || id == nocacheFile || id == endtimeFile:
	case !utf8.ValidString(id):
	default:
		return nil
	}
	return fmt.Errorf("%w: %.80q", errMinion, id)
}

func checkJID(jid string) error {
	if !Valid(jid) {
		return fmt.Errorf("%w: %.40q", ErrJID, jid)
	}
	return nil
}

func minionsName(syndic string) string {
	if syndic == "" {
		return minionsFile
	}
	return ".minions." + syndic + ".p"
}

// readValue reads a packed value; ok is false when there is no such file.
func readValue(path string) (v any, ok bool, err error) {
	v, err = datafile.Bound{Bytes: maxFile}.Read(path)
	if missing(err) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("job cache: %w", err)
	}
	return v, true, nil
}

func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

func exists(path string) bool {
	var st syscall.Stat_t
	return syscall.Stat(path, &st) == nil
}

// readNames lists a directory. It returns nil if the directory does not exist.
func readNames(dir string) ([]os.DirEntry, error) {
	list, err := os.ReadDir(dir)
	if missing(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("job cache: %w", err)
	}
	return list, nil
}
