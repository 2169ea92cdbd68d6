// Package backup writes and restores data that cannot be created again: the keys of the cluster and
// of its minions, the administrator's options, states and pillars, and optionally the job cache and the
// history of runs.
//
// A backup is a tar archive, compressed with gzip and encrypted with age, for recipients (public
// keys) or with a passphrase. It is never on a disk without encryption. Its first entry is the
// [Manifest].
//
// Anybody with a recipient's public key can encrypt for that recipient. So the cluster's key signs
// the archive; on a node without a cluster the master's key does. An archive is restored only if
// that key is trusted ([Trust]). A passphrase by itself authenticates an archive. The content of an
// archive is still as hostile as any input: a restore accepts only regular files in known places,
// with bounded sizes and numbers, and puts nothing into place before it has read and checked the
// whole archive.
package backup

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"filippo.io/age"

	"saltern/internal/printable"
	"saltern/supervisor/python"
	"saltern/supervisor/secrets"
	"saltern/supervisor/settings"
)

// format is the version of the archive's layout. Since version 2 the last entry is a signature.
// Archives of version 1 can still be read.
const format = 2

// Manifest describes an archive.
type Manifest struct {
	Format  int       `json:"format"`
	Created time.Time `json:"created"`
	Node    string    `json:"node"`
	Cluster string    `json:"cluster"`
	Version string    `json:"version"` // version of the program that wrote the archive
	Jobs    bool      `json:"jobs"`    // the archive has the job cache and the history of runs
	// Shared reports whether the archive is of a cluster, whose minions know the cluster's key, not a node's
	Shared bool `json:"shared"`
}

// Summary describes what was written, restored or inspected.
type Summary struct {
	Manifest Manifest
	Files    int
	Bytes    int64
	// Signer is the hash of the key that signed the archive. It is empty if the archive is not
	// signed.
	Signer string
	// Skipped lists files in the trees that are not in the backup (links, sockets, devices, names
	// with control characters), with the reason. It has at most maxSkipped entries, and one more if
	// there are others. The texts are safe for a terminal.
	Skipped []string
}

// Options say what to back up.
type Options struct {
	Settings   *settings.Settings
	ConfigPath string // path of appliance.yaml; the file may be missing
	Version    string
	Now        time.Time
	Jobs       bool
	// From is a directory to read instead of the storage directory. On a node whose cluster is
	// lost, From is the node's copy of the shared volume (the brick), which stays readable when the
	// volume is not. Empty: the storage directory.
	From string
}

const (
	manifestName = "manifest.json"
	maxManifest  = 64 << 10
	maxConfig    = 1 << 20
	maxSkipped   = 100
)

// tree is one part of a backup: a directory of the node and its place in the
// archive.
type tree struct {
	name string // name of the tree, such as "pki"
	// base is a directory that only root can change. rel is the path of the tree below base.
	base, rel string
	// master reports whether files of the tree belong to the account of the master.
	master bool
	// skip reports whether to omit a path below rel, because the node creates it again by itself.
	// It may be nil: nothing is omitted.
	skip func(rel string) bool
}

const (
	// historyTree is the name of the tree of the history of runs.
	historyTree = "history"
	// journalTree is the name of the tree where the master keeps jobs and returns. While it runs it renames
	// its segments and gives back what they have allocated.
	journalTree = "jobs.journal"
	segmentLog  = ".log"  // suffix of a segment that the next start replays
	segmentKept = ".kept" // suffix of a segment that stays
)

// treesOf returns the trees of a backup in their order in the archive. Their paths are in the
// storage itself, not in this node's copies of a volume: the next pass of the copier would remove
// files restored into a copy.
func treesOf(s *settings.Settings, jobs bool) []tree {
	list := []tree{
		{
			name:   "pki",
			base:   s.StorageDir(),
			rel:    "pki",
			master: true,
			skip: func(rel string) bool {
				top, _, _ := strings.Cut(rel, "/")
				return top == "sessions" || top == "peers" || top == "jobs" || strings.HasPrefix(path.Base(rel), ".")
			},
		},
		{name: "etc/master.d", base: s.StorageDir(), rel: "etc/master.d"},
		{
			name:   secrets.Dir,
			base:   s.StorageDir(),
			rel:    secrets.Dir,
			master: true,
			skip:   func(rel string) bool { return !secrets.Part(rel) },
		},
		{
			name: python.Dir,
			base: s.StorageDir(),
			rel:  python.Dir,
			skip: func(rel string) bool { return strings.HasPrefix(path.Base(rel), ".") },
		},
		{name: "srv/salt", base: s.StorageDir(), rel: "srv/salt"},
		{name: "srv/pillar", base: s.StorageDir(), rel: "srv/pillar", master: true},
	}

	if jobs {
		t := tree{name: "jobs", base: s.DataDir, rel: "cache/jobs", master: true}
		if s.Peering.Enabled {
			t.base, t.rel = s.StorageDir(), "pki/jobs"
		} else {
			list = append(list, tree{
				name:   journalTree,
				base:   s.DataDir,
				rel:    "cache/jobs.journal",
				master: true,
				skip: func(rel string) bool {
					return path.Dir(rel) != "." || path.Ext(rel) != segmentKept && path.Ext(rel) != segmentLog
				},
			})
		}
		list = append(list, t, tree{
			name:   historyTree,
			base:   s.DataDir,
			rel:    "cache/history",
			master: true,
			skip:   func(rel string) bool { return !strings.HasSuffix(rel, ".seg") && rel != "last-runs" },
		})
	}

	return list
}

// Write writes a backup for one or more recipients. The summary names the skipped files. If a file
// cannot be read, Write returns an error, and the incomplete archive in w cannot be restored.
func Write(ctx context.Context, w io.Writer, o Options, recipients ...age.Recipient) (Summary, error) {
	sum := Summary{Manifest: Manifest{
		Format:  format,
		Created: o.Now.UTC(),
		Node:    o.Settings.Node,
		Cluster: o.Settings.Cluster,
		Version: o.Version,
		Jobs:    o.Jobs,
		Shared:  o.Settings.Peering.Enabled,
	}}

	from := *o.Settings
	if o.From != "" {
		fi, err := os.Stat(filepath.Join(o.From, "pki"))
		if err != nil || !fi.IsDir() {
			return sum, fmt.Errorf("backup: %s is not a copy of the storage: there is no directory pki in it", o.From)
		}
		from.Storage.Path = o.From
	}

	key, err := signer(&from)
	if _, public := recipients[0].(*age.ScryptRecipient); err != nil && !public {
		return sum, fmt.Errorf("backup: %w; a backup for recipients has to be signed, one with a passphrase has not",
			err)
	}

	sealed, err := age.Encrypt(w, recipients...)
	if err != nil {
		return sum, fmt.Errorf("backup: %w", err)
	}

	zip := gzip.NewWriter(sealed)
	b := &writer{
		ctx:    ctx,
		tar:    tar.NewWriter(zip),
		sum:    &sum,
		now:    o.Now,
		digest: newDigest(),
	}

	if err := b.writeAll(o, &from, key); err != nil {
		return sum, fmt.Errorf("backup: %w", err)
	}

	if err := errors.Join(b.tar.Close(), zip.Close(), sealed.Close()); err != nil {
		return sum, fmt.Errorf("backup: %w", err)
	}

	return sum, nil
}

type writer struct {
	ctx context.Context
	tar *tar.Writer
	sum *Summary
	now time.Time
	// latest is the name of the file that was written last.
	latest string
	digest
}

func (b *writer) writeAll(o Options, from *settings.Settings, key *signKey) error {
	text, err := json.MarshalIndent(b.sum.Manifest, "", "  ")
	if err != nil {
		return err
	}

	if err := b.writeText(manifestName, text); err != nil {
		return err
	}

	switch text, err := os.ReadFile(o.ConfigPath); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	default:
		if err := b.writeText("appliance.yaml", text); err != nil {
			return err
		}
	}

	for _, t := range treesOf(from, o.Jobs) {
		if err := b.writeTree(t); err != nil {
			return err
		}
	}

	if key == nil { // no signature is needed: the passphrase proves who made the backup
		return nil
	}

	if text, err = key.signDigest(b.digest); err != nil {
		return err
	}

	b.sum.Signer = key.hash
	return b.writeText(signatureName, text)
}

// header begins an entry. The caller writes the content to the returned writer; the signature
// covers it.
func (b *writer) header(h *tar.Header) (io.Writer, error) {
	b.digest.addHeader(h)
	return io.MultiWriter(b.tar, b.digest), b.tar.WriteHeader(h)
}

func (b *writer) writeText(name string, text []byte) error {
	w, err := b.header(&tar.Header{
		Name:     name,
		Mode:     0o600,
		Size:     int64(len(text)),
		ModTime:  b.now,
		Typeflag: tar.TypeReg,
	})
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

func (b *writer) writeTree(t tree) error {
	dir, err := beneath(t.base, t.rel)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer dir.Close()

	root, err := dir.asRoot()
	if err != nil {
		return err
	}
	defer root.Close()

	if t.name == historyTree {
		return b.writeHistory(root, t)
	}
	return b.writeFolder(root, t, ".", nil)
}

// errGone means that a file was removed after the listing.
var errGone = errors.New("removed while the backup was written")

// writeHistory writes the tree of the history. The master gives restored runs a new file and removes the old one, so
// the folder is listed again until no listed file has gone.
func (b *writer) writeHistory(root *os.Root, t tree) error {
	const rounds = 10
	written := map[string]bool{}
	for range rounds {
		err := b.writeFolder(root, t, ".", written)
		if !errors.Is(err, errGone) {
			return err
		}
	}
	return errors.New("the master removes files of the history again and again; try again")
}

// writeFolder writes the content of a folder of a tree. It does not use fs.WalkDir, which ends at
// a folder whose name is not UTF-8. written may be nil: a file that has gone is left out. Otherwise it has the names
// to leave out and gets those that were written, and a file that has gone leads to errGone at the end.
func (b *writer) writeFolder(root *os.Root, t tree, folder string, written map[string]bool) error {
	f, err := root.OpenFile(folder, os.O_RDONLY|syscall.O_DIRECTORY|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ELOOP) {
		return nil // the folder was removed or replaced meanwhile
	}
	if err != nil {
		return err
	}

	entries, err := f.ReadDir(-1)
	_ = f.Close()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}

	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	var gone error
	for _, e := range entries {
		if b.ctx.Err() != nil {
			return b.ctx.Err()
		}
		if written[e.Name()] {
			continue
		}

		err := b.writeEntry(root, t, path.Join(folder, e.Name()), e)
		if errors.Is(err, errGone) {
			gone = err
			continue
		}
		if err != nil {
			return err
		}
		if written != nil {
			written[e.Name()] = true
		}
	}

	if written == nil {
		return nil
	}
	return gone
}

// writeEntry writes one entry of a tree. For a folder it also writes everything below.
func (b *writer) writeEntry(root *os.Root, t tree, rel string, e fs.DirEntry) error {
	name := t.name + "/" + rel
	if t.skip != nil && t.skip(rel) || strings.HasPrefix(e.Name(), restoringPrefix) {
		return nil
	}

	if err := checkName(name); err != nil { // check folders too, because a restore refuses such names
		b.skipped(name, err.Error())
		return nil
	}

	switch {
	case e.IsDir():
		if err := b.writeDir(name, e); err != nil {
			return err
		}
		return b.writeFolder(root, t, rel, nil)
	case !e.Type().IsRegular():
		b.skipped(name, "is not a regular file")
		return nil
	}

	err := b.writeFile(root, t, rel)
	segment, isSegment := strings.CutSuffix(rel, segmentLog)
	if t.name != journalTree || !isSegment || !errors.Is(err, errGone) {
		return err
	}
	if kept := segment + segmentKept; b.latest != t.name+"/"+kept { // the master has renamed it meanwhile
		return b.writeFile(root, t, kept)
	}
	return nil
}

// skipped records a file that is not in the backup. The name may be hostile.
func (b *writer) skipped(name, why string) {
	switch n := len(b.sum.Skipped); {
	case n < maxSkipped:
		b.sum.Skipped = append(b.sum.Skipped, printable.Line(name)+" "+why)
	case n == maxSkipped:
		b.sum.Skipped = append(b.sum.Skipped, "and more")
	}
}

// writeDir writes a directory with its mode, so that the backup has empty ones too.
func (b *writer) writeDir(name string, e fs.DirEntry) error {
	fi, err := e.Info()
	if err != nil {
		return nil // the file was removed after the listing
	}
	_, err = b.header(&tar.Header{
		Name:     name + "/",
		Mode:     int64(fi.Mode().Perm()),
		ModTime:  fi.ModTime(),
		Typeflag: tar.TypeDir,
	})
	return err
}

// writeFile writes one file of a tree. The error is errGone if the file is not there any more.
func (b *writer) writeFile(root *os.Root, t tree, rel string) error {
	name := t.name + "/" + rel
	f, err := root.OpenFile(rel, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return errGone
	}
	if err != nil {
		return err
	}
	defer f.Close()

	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if !fi.Mode().IsRegular() {
		b.skipped(name, "is not a regular file")
		return nil
	}
	if fi.Size() > maxFile {
		return fmt.Errorf("%s is larger than %d GiB; move it out of the tree", name, maxFile>>30)
	}

	w, err := b.header(&tar.Header{
		Name:     name,
		Mode:     int64(fi.Mode().Perm()),
		Size:     fi.Size(),
		ModTime:  fi.ModTime(),
		Typeflag: tar.TypeReg,
	})
	if err != nil {
		return err
	}

	var content io.Reader = f
	if t.name == journalTree { // what is behind the records of a segment is zeros
		content = io.MultiReader(f, zeros{})
	}
	n, err := io.Copy(w, io.LimitReader(content, fi.Size()))
	if err != nil {
		return err
	}
	if n < fi.Size() {
		return fmt.Errorf("%s became shorter while it was read; try again", name)
	}

	b.latest = name
	b.sum.Files++
	b.sum.Bytes += n
	return nil
}

// zeros is a reader of endless zeros.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
