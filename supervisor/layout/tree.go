package layout

import (
	"bytes"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/hashicorp/go-multierror"

	"saltern/internal/durable"
	"saltern/supervisor/settings"
)

// Make creates the directories of a node. The supervisor calls it before every start of the master.
// Existing directories keep their mode, except those of secrets.
func Make(s *settings.Settings, master, lb Account) error {
	dirs := []struct {
		path  string
		mode  fs.FileMode
		owner *Account // nil: the account of this process
		exact bool     // set the mode even if the directory exists
	}{
		{s.DataDir, 0o755, nil, false},
		{filepath.Join(s.DataDir, "etc"), 0o755, nil, false},
		{s.MasterConf(), 0o755, nil, false},
		{ClientConf(s), 0o755, nil, false},
		{s.APIDir(), 0o755, nil, false},
		{s.LogDir(), 0o750, nil, false},
		{s.CacheDir(), 0o750, &master, false},
		// With a volume, this directory is in the local copy. The storage manager creates the
		// directories of the volume itself.
		{filepath.Dir(filepath.Dir(s.UserConfDir())), 0o755, nil, false},
		{filepath.Dir(s.UserConfDir()), 0o755, nil, false},
		{s.UserConfDir(), 0o755, nil, false},
		{s.GPGDir(), 0o700, &master, true},
		{filepath.Dir(s.FileRoot()), 0o755, nil, false},
		{s.FileRoot(), 0o755, nil, false},
		{s.PillarRoot(), 0o750, &master, false},
		{s.PKIDir(), 0o700, &master, true},
		{s.LayersDir(), 0o755, nil, false},
		{s.RuntimeDir, 0o755, nil, false},
		{s.MasterSockDir(), 0o755, &master, false},
		{filepath.Dir(s.LBSocket()), 0o755, &lb, false},
	}

	var faults *multierror.Error
	for _, d := range dirs {
		faults = multierror.Append(faults, makeDir(d.path, d.mode, d.owner, d.exact))
	}

	return faults.ErrorOrNil()
}

func makeDir(path string, mode fs.FileMode, owner *Account, exact bool) error {
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.Mkdir(path, mode)
	}

	made := err == nil
	if errors.Is(err, os.ErrExist) {
		fi, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
		if !fi.IsDir() {
			return fmt.Errorf("make directory: %s exists and is not a directory", path)
		}
	} else if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}

	if made || exact {
		if err := os.Chmod(path, mode); err != nil { // sets the mode regardless of the umask
			return fmt.Errorf("make directory: %w", err)
		}
	}

	if made && owner != nil && owner.Credential != nil {
		if err := os.Chown(path, owner.UID, owner.GID); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}

	return nil
}

// WriteFile replaces a file by [durable.Replace], unless the file already has that content. It
// reports whether it wrote the file.
func WriteFile(path string, content []byte, mode fs.FileMode) (bool, error) {
	if old, _, err := durable.ReadFile(path, int64(len(content)), durable.Follow); err == nil &&
		bytes.Equal(old, content) {
		return false, nil
	}
	if err := durable.Replace(path, content, mode); err != nil {
		return false, fmt.Errorf("write %s: %w", path, err)
	}
	return true, nil
}

// WriteSecret works like WriteFile, for content that may contain secrets: only this account and the
// group of reader can read the file. If reader is this account, only this account can. WriteSecret
// also corrects the mode of a file that has the content already. The bool reports whether it has
// changed content, owner or mode.
func WriteSecret(path string, content []byte, reader Account) (bool, error) {
	wrote, err := WriteFile(path, content, 0o600)
	if err != nil {
		return false, err
	}

	f, info, err := durable.Open(path, durable.Refuse)
	if err != nil {
		return wrote, fmt.Errorf("write %s: %w", path, err)
	}
	defer f.Close()

	mode, group := fs.FileMode(0o600), os.Getegid()
	if reader.Credential != nil {
		mode, group = 0o640, reader.GID
	}

	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) == os.Geteuid() && int(st.Gid) == group &&
		info.Mode().Perm() == mode {
		return wrote, nil
	}

	err = f.Chmod(0o600) // no access for others until the group is right
	if err == nil && reader.Credential != nil {
		err = f.Chown(os.Geteuid(), group)
	}

	if err == nil {
		err = f.Chmod(mode)
	}

	if err != nil {
		return wrote, fmt.Errorf("write %s: %w", path, err)
	}

	return wrote, nil
}

// KeyFault describes a key file that the master could not use.
type KeyFault struct {
	Path   string
	Reason string
	Err    error // error of reading the file; nil: its content, owner or mode is wrong
}

// Error returns the path and the reason.
func (k *KeyFault) Error() string { return "key file " + k.Path + ": " + k.Reason }

// maxKeyFile is the largest size of a PEM file in bytes: a 16384-bit private key has 13 KiB.
const maxKeyFile = 64 << 10

// CheckKeys checks the master's own key files, if they exist. Each must be a regular file in PEM
// that is not empty and that reader, the master's account, can read.
func CheckKeys(pki string, reader Account) error {
	var faults *multierror.Error
	entries, err := os.ReadDir(pki)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return &KeyFault{Path: pki, Reason: err.Error(), Err: err}
	}

	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".pem") || strings.HasPrefix(e.Name(), ".") {
			continue
		}

		path := filepath.Join(pki, e.Name())
		if to, err := filepath.EvalSymlinks(path); err == nil && to != path &&
			filepath.Dir(to) == filepath.Clean(pki) && strings.HasSuffix(to, ".pem") {
			continue // a link such as master.pem to another key, which is checked itself
		}

		b, _, err := durable.ReadFile(path, maxKeyFile, durable.Follow)
		if err != nil {
			reason := err.Error()
			if pe, ok := errors.AsType[*fs.PathError](err); ok {
				reason = pe.Err.Error()
			}
			faults = multierror.Append(faults, &KeyFault{Path: path, Reason: reason, Err: err})
		} else if reason := keyFault(path, b, reader); reason != "" {
			faults = multierror.Append(faults, &KeyFault{Path: path, Reason: reason})
		}
	}

	return faults.ErrorOrNil()
}

// keyFault returns what is wrong with a key file that has the content b, or "".
func keyFault(path string, b []byte, reader Account) string {
	if block, _ := pem.Decode(b); block == nil {
		return "does not hold a PEM key (empty or cut short)"
	}

	fi, err := os.Stat(path)
	if err != nil {
		return err.Error()
	}

	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok || reader.UID == 0 {
		return ""
	}

	mode := fi.Mode().Perm()
	switch {
	case int(st.Uid) == reader.UID && mode&0o400 != 0:
	case int(st.Uid) != reader.UID && int(st.Gid) == reader.GID && mode&0o040 != 0:
	case int(st.Uid) != reader.UID && int(st.Gid) != reader.GID && mode&0o004 != 0:
	default:
		return fmt.Sprintf("not readable by %s (owner %d, mode %04o)", reader.Name, st.Uid, mode)
	}

	return ""
}

// Signature returns a value that changes when a file changes. It is empty for a missing file.
func Signature(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(fi.ModTime().UnixNano(), fi.Size())
}
