// Package sharedfault describes errors of the storage that the nodes of a cluster share, for
// people. The descriptions contain the cause, the code of the problem in the status, and the next
// step, but no name of a file that only programs know.
package sharedfault

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"saltern/supervisor/internal/probe"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Words describes an error from the shared storage of a node with these settings. isShared is false
// if the error has another cause. A change that ends with an error from the shared storage may have
// been made nevertheless: perhaps only its answer was lost, and another node sees the change.
func Words(err error, s *settings.Settings) (text string, isShared bool) {
	if err == nil || s == nil || s.Storage.Kind == settings.LocalStorage {
		return "", false
	}

	subject := "the shared directory"
	code := status.StorageUnusable
	next := "check its server and the mount"
	if s.OnVolume() {
		subject = "the shared volume"
		code = status.VolumeHangs
		next = "applianced storage status shows what is away"
	}

	say := func(how string, code status.Code) (string, bool) {
		return fmt.Sprintf("%s %s (%s), and what was asked may not have been done; next: %s; then look, and try again",
			subject, how, code, next), true
	}

	if errors.Is(err, nodes.ErrShared) {
		return say("does not answer", code)
	}
	if !concerns(err, s.StorageDir()) {
		return "", false
	}

	switch fault := probe.FaultOfDisk(err); {
	case fault == probe.ServerAway, fault == probe.DiskFails:
		return say("does not answer", code)
	case fault == probe.DiskIsFull, fault == probe.QuotaIsUsed:
		if s.OnVolume() {
			code = status.VolumeFull
		}
		next = "make room there"
		return say("is full", code)
	case fault == probe.DiskReadOnly:
		if s.OnVolume() {
			code = status.VolumeNoQuorum
		}
		return say("takes no writes", code)
	case errors.Is(err, unix.ENOENT) && !hidden(err, s.StorageDir()):
		return "", false // a file that a person has named
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		if s.OnVolume() {
			code = status.VolumeAbsent
		}
		return say("is not there", code)
	}

	return "", false
}

// pathsOf returns the files that an error names.
func pathsOf(err error) (out []string) {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		out = append(out, e.Path)
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		out = append(out, e.Old, e.New)
	}
	return out
}

// concerns reports whether an error names a file below dir. Relative paths come from an [os.Root],
// which nodes open only on the shared storage.
func concerns(err error, dir string) bool {
	dir = filepath.Clean(dir)
	for _, p := range pathsOf(err) {
		if p == dir || strings.HasPrefix(p, dir+"/") || p != "" && !filepath.IsAbs(p) {
			return true
		}
	}
	return false
}

// hidden reports whether an error names dir itself, or a file that only programs know.
func hidden(err error, dir string) bool {
	for _, p := range pathsOf(err) {
		if filepath.Clean(p) == filepath.Clean(dir) || strings.HasPrefix(filepath.Base(p), ".") {
			return true
		}
	}
	return false
}
