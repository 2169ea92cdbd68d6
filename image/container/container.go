// Package container defines the contents of the container image: a node's supervisor, the master,
// the master's tools and salt-api, which are static programs, the certificates of public
// authorities, one account, and the folders of Salt and of a node. The image contains no shell, no
// Python and no git, unless a Debian tree is its lowest layer. docs/containers.md lists what is
// missing.
package container

import (
	"bytes"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/image/oci"
)

// account is the number of the user and the group that own everything in the container. Folders
// that are mounted into the container must belong to this number.
const account = 450

// Options describes the container image to build.
type Options struct {
	Version string
	Created time.Time
	// Programs is a folder with one folder of programs for each of Arch.
	Programs string
	// Arch are the architectures, as Go names them.
	Arch []string
	// Certificates is a folder of PEM files, *.crt, taken from a package. The folder of the
	// building machine is not suitable, because it may contain authorities that only this machine
	// trusts.
	Certificates string
	// Below is the folder of the lowest layer, or "" for none. The layer must be for the single
	// architecture in Arch.
	Below string
}

// pythonSuffix ends the name of an image with Python.
const pythonSuffix = "-python"

// imageName returns the image's name in its layout.
func (o Options) imageName() string {
	if o.Below != "" {
		return "saltern:" + o.Version + pythonSuffix
	}
	return "saltern:" + o.Version
}

// programs are installed in /usr/bin; links are further names of the last program.
var (
	programs = []string{"applianced", "salt-master", "salt-api", "salt"}
	links    = []string{"salt-key", "salt-run", "salt-cp"}
)

// Image returns the image. Its layers refer to the programs' files, which must exist until the image
// is written.
func Image(o Options) (oci.Image, error) {
	base, err := o.baseLayer()
	if err != nil {
		return oci.Image{}, err
	}

	lower := [][]oci.Entry{base}
	if o.Below != "" {
		if len(o.Arch) != 1 {
			return oci.Image{}, fmt.Errorf("container: %s is for one kind of machine, not for %v", o.Below, o.Arch)
		}

		below, err := oci.Tree(o.Below)
		if err != nil {
			return oci.Image{}, err
		}

		lower = [][]oci.Entry{below, base}
	}

	img := oci.Image{Ref: o.imageName(), Created: o.Created,
		Labels: map[string]string{
			"org.opencontainers.image.title": "Saltern",
			"org.opencontainers.image.description": "Node of a Salt master cluster for minions 3006, 3007 " +
				"and 3008, with salt-api and Salt's tools",
			"org.opencontainers.image.version":  o.Version,
			"org.opencontainers.image.created":  o.Created.UTC().Format(time.RFC3339),
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
		// Without an entry point the first word of a container's command line names the program.
		// The log goes to the console, because a file in a container would grow without bound.
		Config: oci.Config{
			User:       fmt.Sprintf("%d:%d", account, account),
			Env:        []string{"PATH=/usr/bin"},
			WorkingDir: "/",
			Cmd: []string{"salt-master", "--log-file-level", "quiet", "--pid-file",
				"/run/salt/salt-master.pid"},
			ExposedPorts: map[string]struct{}{"4505/tcp": {}, "4506/tcp": {}},
			StopSignal:   "SIGTERM",
		}}

	for _, arch := range o.Arch {
		layer, err := o.programs(arch)
		if err != nil {
			return oci.Image{}, err
		}
		img.Platforms = append(img.Platforms,
			oci.Platform{Architecture: arch, Layers: append(slices.Clone(lower), layer)})
	}

	return img, nil
}

// baseLayer returns the layer that all architectures share.
func (o Options) baseLayer() ([]oci.Entry, error) {
	certificates, err := bundle(o.Certificates)
	if err != nil {
		return nil, err
	}

	dir := func(path string, mode fs.FileMode, owner int) oci.Entry {
		return oci.Entry{Path: path, Mode: fs.ModeDir | mode, Owner: owner}
	}
	file := func(path, text string) oci.Entry { return oci.Entry{Path: path, Mode: 0o644, Data: []byte(text)} }
	out := []oci.Entry{
		dir("etc", 0o755, 0), dir("etc/salt", 0o755, 0), dir("etc/salt/master.d", 0o755, 0), dir("etc/ssl",
			0o755, 0), dir("etc/ssl/certs", 0o755, 0),
		dir("etc/salt/pki", 0o700, account), dir("etc/salt/pki/master", 0o700, account),
		dir("run", 0o755, 0), dir("run/salt", 0o755, account), dir("tmp", fs.ModeSticky|0o777, 0),
		dir("srv", 0o755, 0), dir("srv/salt", 0o755, 0), dir("srv/pillar", 0o755, 0),
		dir("var", 0o755, 0), dir("var/cache", 0o755, 0), dir("var/cache/salt", 0o755, account), dir("var/log",
			0o755, 0), dir("var/log/salt", 0o755, account),
		dir("etc/saltern", 0o755, account), dir("run/saltern", 0o755, account), dir("srv/cluster", 0o755, account),
		dir("var/lib", 0o755, 0), dir("var/lib/saltern", 0o750, account),
		{Path: "var/run", Mode: fs.ModeSymlink | 0o777, Link: "/run"},
		file("etc/passwd",
			fmt.Sprintf("root:x:0:0:root:/root:/sbin/nologin\nsalt:x:%d:%d:Salt:/var/cache/salt:/sbin/nologin\n",
				account, account)),
		file("etc/group", fmt.Sprintf("root:x:0:\nsalt:x:%d:\n", account)),
		file("etc/salt/master.d/saltern.conf",
			"# Of the image, where no configuration is mounted over /etc/salt.\nuser: salt\nlog_level: info\n"),
		{Path: "etc/ssl/certs/ca-certificates.crt", Mode: 0o644, Data: certificates},
	}

	if o.Below == "" { // without Debian's layer, which has an os-release, add one for scanners
		out = append(out,
			file("etc/os-release",
				fmt.Sprintf("NAME=Saltern\nID=saltern\nVERSION_ID=%s\nPRETTY_NAME=\"Saltern %s (container)\"\n",
					o.Version, o.Version)))
	}

	return out, nil
}

// programs returns the entries of the layer with the programs for an architecture.
func (o Options) programs(arch string) ([]oci.Entry, error) {
	out := []oci.Entry{{Path: "usr", Mode: fs.ModeDir | 0o755}, {Path: "usr/bin", Mode: fs.ModeDir | 0o755}}
	for _, name := range programs {
		path := filepath.Join(o.Programs, arch, name)
		if err := static(path, arch); err != nil {
			return nil, err
		}
		out = append(out, oci.Entry{Path: "usr/bin/" + name, Mode: 0o755, Source: path})
	}
	for _, name := range links {
		out = append(out,
			oci.Entry{Path: "usr/bin/" + name, Mode: fs.ModeSymlink | 0o777, Link: programs[len(programs)-1]})
	}
	return out, nil
}

// static returns an error unless a program is for the architecture and needs no library.
func static(path, arch string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("container: %w; make packages-parts ARCH=%s builds the programs", err, arch)
	}
	set := map[string]string{}
	for _, s := range info.Settings {
		set[s.Key] = s.Value
	}
	if set["GOOS"] != "linux" || set["GOARCH"] != arch || set["CGO_ENABLED"] != "0" {
		return fmt.Errorf("container: %s is for %s/%s with CGO_ENABLED=%s, not a static program for linux/%s",
			path, set["GOOS"], set["GOARCH"], set["CGO_ENABLED"], arch)
	}
	return nil
}

// bundle returns the certificates of a folder joined to one text, as Debian's
// update-ca-certificates joins them.
func bundle(dir string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.crt"))
	if err != nil {
		return nil, fmt.Errorf("container: %w", err)
	}

	slices.Sort(files)
	var out bytes.Buffer
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return nil, fmt.Errorf("container: %w", err)
		}
		out.Write(bytes.TrimSpace(b))
		out.WriteByte('\n')
	}

	if out.Len() == 0 {
		return nil, errors.New("container: no certificates are in " + dir + "; apt-get install ca-certificates")
	}

	return out.Bytes(), nil
}
