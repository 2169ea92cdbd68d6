// Package support writes a support bundle: one compressed archive with the data that is needed to
// find a fault of a node, without secrets.
//
// Two measures keep secrets out. The bundle contains only files and outputs that this package
// names, never the content of keys, tokens, states, pillars, jobs or minion data. And every text
// passes a [Redactor], which knows the values of this node's secrets and the usual forms of
// secrets. A bundle may still contain names of minions and nodes, addresses, and options of the
// configuration.
package support

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Source describes the node for which a bundle is written.
type Source struct {
	Settings   *settings.Settings
	ConfigPath string // path of appliance.yaml; the file may be missing
	Version    string
	Now        time.Time
	// Status returns the status from the supervisor. If it fails, the bundle contains the error.
	Status func(context.Context) (status.Document, error)
	// Commands are the command lines of programs whose output is collected. It may be nil:
	// those of the function [Commands].
	Commands map[string][]string
	// Look returns nil if a directory on the shared storage answers. It may be nil: then a child
	// process checks the directory.
	Look func(ctx context.Context, dir string) error
}

const (
	maxFile   = 4 << 20  // bytes of one file; of a longer file only the end is included
	maxBundle = 64 << 20 // bytes of all files, before compression
	maxListed = 20000    // number of files in a list
)

// Commands returns the command lines of the programs whose output is collected, by the output's
// name in the bundle. The programs change nothing, and each of them may be missing.
func Commands() map[string][]string {
	return map[string][]string{
		"system/uname.txt":     {"uname", "-a"},
		"system/addresses.txt": {"ip", "-brief", "address"},
		"system/routes.txt":    {"ip", "route"},
		"system/sockets.txt":   {"ss", "-tulpn"},
		"system/disks.txt":     {"df", "-hTl"},
		"system/blocks.txt":    {"lsblk"},
		// comm, not the arguments: other programs' arguments may be secret.
		"system/processes.txt": {"ps", "-eo", "pid,ppid,user,stat,etimes,rss,pcpu,comm"},
		"system/time.txt":      {"timedatectl", "show"},
		"system/units.txt":     {"systemctl", "list-units", "--all", "--no-pager", "--plain"},
		"system/failed.txt":    {"systemctl", "--failed", "--no-pager", "--plain"},
		"system/journal.txt": {"journalctl", "-u", "applianced", "-u", "glusterd", "-n", "5000",
			"--no-pager", "-o", "short-iso"},
		"system/kernel.txt":   {"journalctl", "-k", "-n", "1000", "--no-pager", "-o", "short-iso"},
		"storage/peers.txt":   {"gluster", "--mode=script", "peer", "status"},
		"storage/volumes.txt": {"gluster", "--mode=script", "volume", "info"},
		"storage/bricks.txt":  {"gluster", "--mode=script", "volume", "status"},
		"storage/heal.txt":    {"gluster", "--mode=script", "volume", "heal", "cluster", "info", "summary"},
		"system/firewall.txt": {"nft", "list", "ruleset"},
		"system/limits.txt": {"cat", "/proc/sys/fs/file-nr", "/proc/meminfo", "/proc/loadavg",
			"/proc/pressure/io", "/proc/pressure/memory"},
		"system/os-release.txt": {"cat", "/etc/os-release"},
	}
}

// userConf returns the paths of the administrator's own option files. hangs is the storage
// directory if it does not answer, else "".
func userConf(s *settings.Settings, hangs string) []string {
	if hangs != "" && within(s.UserConfDir(), hangs) {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(s.UserConfDir(), "*.conf"))
	return files[:min(len(files), 256)]
}

// Write writes the bundle. The bundle says what could not be read and why, and omits storage that
// hangs. Write returns an error only if writing to w fails or ctx ends.
func Write(ctx context.Context, w io.Writer, s Source) error {
	if s.Look == nil {
		s.Look = checkAnswers
	}

	zip := gzip.NewWriter(w)
	b := &bundle{
		ctx:  ctx,
		tar:  tar.NewWriter(zip),
		src:  s,
		left: maxBundle,
		top:  "saltern-support-" + s.Settings.Node + "-" + s.Now.UTC().Format("20060102T150405Z"),
	}

	if err := s.Look(ctx, s.Settings.StorageDir()); err != nil {
		b.hangs = s.Settings.StorageDir()
		b.missing = append(b.missing,
			fmt.Sprintf("%s: the storage does not answer (%v); secrets that are only there are known by their form",
				b.hangs, err))
	}

	b.red = newRedactor(secretsOf(s, b.hangs)...)
	b.collect()
	if b.err == nil {
		b.addText("NOT-COLLECTED.txt", []byte(strings.Join(b.missing, "\n")+"\n"))
	}

	return errors.Join(b.err, b.tar.Close(), zip.Close(), ctx.Err())
}

// bundle is an archive that is being written.
type bundle struct {
	ctx     context.Context
	tar     *tar.Writer
	src     Source
	red     *Redactor
	top     string
	hangs   string // the storage directory, if it does not answer; else empty
	left    int
	missing []string
	err     error
}

func (b *bundle) collect() {
	s := b.src.Settings
	b.addText("README.txt",
		[]byte("Support bundle of node "+s.Node+", made "+b.src.Now.UTC().Format(time.RFC3339)+
			" by Saltern "+b.src.Version+
			".\nSecrets were left out; [removed] stands where one was. "+
			"Names of minions and\nnodes, addresses and options of the configuration are in it.\n"))

	b.status()
	b.addFile("config/appliance.yaml", b.src.ConfigPath)
	b.addFile("config/master", filepath.Join(s.MasterConf(), "master"))
	b.addFile("config/lb.yaml", s.LBConf())

	for _, f := range userConf(s, b.hangs) {
		b.addFile("config/master.d/"+filepath.Base(f), f)
	}

	logs, _ := filepath.Glob(filepath.Join(s.LogDir(), "*"))
	for _, f := range logs[:min(len(logs), 32)] {
		if f == s.AuditDir() {
			continue // the audit record is only for the administrators of the node
		}
		b.addFile("log/"+filepath.Base(f), f)
	}

	for name, dir := range map[string]string{
		"files/pki.txt":        s.PKIDir(),
		"files/shared-pki.txt": s.SharedPKIDir(),
		"files/srv.txt":        filepath.Dir(s.FileRoot()),
		"files/data.txt":       s.DataDir,
		"files/run.txt":        s.RuntimeDir,
	} {
		if b.hangs != "" && within(dir, b.hangs) {
			continue
		}
		b.addText(name, listFiles(dir, b.hangs))
	}

	commands := b.src.Commands
	if commands == nil {
		commands = Commands()
	}

	names := slices.Sorted(maps.Keys(commands))
	for _, name := range names {
		b.command(name, commands[name])
	}
}

func (b *bundle) status() {
	d, err := b.src.Status(b.ctx)
	if err != nil {
		b.missing = append(b.missing, "status: "+err.Error())
		return
	}
	var text, js strings.Builder
	if err := errors.Join(status.WriteText(&text, d), status.WriteJSON(&js, d)); err != nil {
		b.missing = append(b.missing, "status: "+err.Error())
		return
	}
	b.addText("status.txt", []byte(text.String()))
	b.addText("status.json", []byte(js.String()))
}

// addText adds text to the archive, without its secrets.
func (b *bundle) addText(name string, text []byte) {
	if b.err != nil || b.ctx.Err() != nil {
		return
	}

	text = b.red.Clean(text)
	if len(text) > b.left {
		b.missing = append(b.missing, name+": the bundle is full")
		return
	}

	b.left -= len(text)
	h := &tar.Header{
		Name:     b.top + "/" + name,
		Mode:     0o600,
		Size:     int64(len(text)),
		ModTime:  b.src.Now,
		Typeflag: tar.TypeReg,
	}

	if b.err = b.tar.WriteHeader(h); b.err == nil {
		_, b.err = b.tar.Write(text)
	}
}

// addFile adds the end of a regular file to the archive, without its secrets.
func (b *bundle) addFile(name, path string) {
	text, err := readTail(path, maxFile)
	if err != nil {
		b.missing = append(b.missing, name+": "+err.Error())
		return
	}
	b.addText(name, text)
}

func (b *bundle) command(name string, argv []string) {
	out, err := runBounded(b.ctx, commandTime, argv...)
	if err != nil {
		b.missing = append(b.missing, fmt.Sprintf("%s: %s: %v", name, strings.Join(argv, " "), err))
	}
	if len(out) > 0 {
		b.addText(name, out)
	}
}
