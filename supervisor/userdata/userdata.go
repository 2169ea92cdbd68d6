// Package userdata looks for answers to the set-up that were given with the
// machine, so that nobody has to sit at its console:
//
//	variables of the environment, of a container                    environment.go
//	saltern.answers= and saltern.join= on the kernel command line   cmdline.go
//	a disk or directory labelled cidata (NoCloud)                   nocloud.go
//	user-data of EC2, by IMDSv2 only                                ec2.go
//	properties of an OVF environment, and VMware's guestinfo        ovf.go
//	a file, /etc/saltern/answers.yaml
//
// The first source that has something is used, alone; what it has may be
// wrong, and then that is said instead of looking further. "Nothing" is no
// error. All sources give the same text, which [Parse] reads strictly.
package userdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"github.com/hashicorp/go-multierror"
	"go.yaml.in/yaml/v3"

	"saltern/durable"
	"saltern/supervisor/internal/imds"
	"saltern/supervisor/setup"
)

// MaxText bounds answers before they are read: EC2's limit is 16 KiB.
const MaxText = 64 << 10

// source is one place where answers may be.
type source struct {
	Name string
	// Get gives the text, nil when there is nothing. An error says that there
	// is something that cannot be read.
	Get func(context.Context) ([]byte, error)
}

// Places are where the sources look; the zero value of a field leaves its
// source out.
type Places struct {
	// Environment gives a variable of the environment: os.Getenv. It comes first, so
	// that a container never reads what its host was given.
	Environment func(name string) string
	CommandLine string // /proc/cmdline
	Seeds       []string
	Devices     string // /dev/disk/by-label
	EC2         string // http://169.254.169.254
	DMI         string // /sys/class/dmi/id: tells EC2 and VMware apart from others
	OVF         string // directory of a mounted OVF disk
	GuestInfo   []string
	File        string
	Log         *slog.Logger
}

// Default gives the places of a real machine.
func Default(log *slog.Logger) Places {
	return Places{Environment: os.Getenv, CommandLine: "/proc/cmdline", Seeds: []string{"/var/lib/cloud/seed/nocloud", "/run/saltern-seed"}, Devices: "/dev/disk/by-label",
		EC2: imds.Address, DMI: "/sys/class/dmi/id", GuestInfo: []string{"vmware-rpctool", "vmtoolsd"},
		File: "/etc/saltern/answers.yaml", Log: log}
}

// Look asks the sources in their order. It gives nil without an error when
// none of them has anything for us.
func (p Places) Look(ctx context.Context) (*setup.Answers, string, error) {
	for _, s := range p.sources() {
		text, err := s.Get(ctx)
		if err != nil {
			return nil, s.Name, fmt.Errorf("%s: %w", s.Name, err)
		}
		if len(bytes.TrimSpace(text)) == 0 {
			continue
		}
		a, err := Parse(text)
		if errors.Is(err, ErrOther) { // for cloud-init or somebody else
			p.Log.Info("what was given with this machine is not for the set-up", "path", s.Name)
			continue
		}
		if err != nil {
			return nil, s.Name, err
		}
		p.Log.Info("answers for the set-up were given with this machine", "path", s.Name)
		return a, s.Name, nil
	}
	return nil, "", nil
}

func (p Places) sources() (out []source) {
	add := func(use bool, name string, get func(context.Context) ([]byte, error)) {
		if use {
			out = append(out, source{name, get})
		}
	}
	add(p.Environment != nil, "the environment", p.environment)
	add(p.CommandLine != "", "the kernel command line", p.commandLine)
	add(len(p.Seeds) > 0 || p.Devices != "", "the cidata disk", p.noCloud)
	add(p.EC2 != "", "EC2 user-data", p.ec2)
	add(p.OVF != "" || p.Devices != "", "the OVF environment", p.ovf)
	add(len(p.GuestInfo) > 0, "VMware guestinfo", p.guestInfo)
	add(p.File != "", p.File, func(context.Context) ([]byte, error) { return readFile(p.File) })
	return out
}

// ErrOther means that a text is meant for somebody else, such as cloud-init.
var ErrOther = errors.New("not for the set-up")

// head marks user-data for us where other programs read it as well.
const head = "#saltern"

// Parse reads answers. They are YAML, either alone or below the key saltern of
// a #cloud-config, so that cloud-init and we can share a file. A text of
// neither kind (a script, a #cloud-config without that key) is [ErrOther].
// Every unknown key and wrong type is a fault, all at once with lines.
func Parse(text []byte) (*setup.Answers, error) {
	if len(text) > MaxText {
		return nil, fmt.Errorf("larger than %d bytes", MaxText)
	}
	var doc yaml.Node
	first, _, _ := strings.Cut(string(text), "\n")
	first = strings.TrimSpace(first)
	ours := strings.HasPrefix(first, head)
	if !ours && (strings.HasPrefix(first, "#!") || strings.HasPrefix(first, "Content-Type:") || strings.HasPrefix(first, "#include") || strings.HasPrefix(first, "\x1f\x8b")) {
		return nil, ErrOther
	}
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, err
	}
	if doc.Kind == 0 || len(doc.Content) == 0 {
		return nil, ErrOther
	}
	top := doc.Content[0]
	if top.Kind != yaml.MappingNode {
		return nil, errors.New("is not a list of answers (key: value)")
	}
	part := child(top, "saltern")
	switch {
	case part != nil && part.Kind == yaml.MappingNode:
		top = part
	case part != nil:
		return nil, fmt.Errorf("line %d: saltern is not a list of answers (key: value)", part.Line)
	case strings.HasPrefix(first, "#cloud-config"):
		return nil, ErrOther
	}
	return decode(top)
}

func child(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

// decode is strict; a yaml.Node can only be decoded leniently, so it is
// written out again, which keeps lines only when it stood alone.
func decode(n *yaml.Node) (*setup.Answers, error) {
	text, err := yaml.Marshal(n)
	if err != nil {
		return nil, err
	}
	var a setup.Answers
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	err = dec.Decode(&a)
	if te, ok := errors.AsType[*yaml.TypeError](err); ok {
		var all *multierror.Error
		for _, m := range te.Errors {
			all = multierror.Append(all, errors.New(mend(m)))
		}
		return nil, all.ErrorOrNil()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return &a, nil
}

// mend makes a message of the YAML library one for people.
func mend(m string) string {
	m = strings.NewReplacer("setup.Answers", "answers", "setup.Storage", "storage", "setup.Network", "network", "setup.Admin", "admin",
		"setup.Mode", "mode", " in type ", " in ").Replace(m)
	if i := strings.Index(m, ": "); i > 0 && strings.HasPrefix(m, "line ") {
		m = m[i+2:] // counted in what was written out again
	}
	return strings.Replace(m, "cannot unmarshal", "cannot read", 1)
}

// readFile reads a small regular file; a missing one is nothing.
func readFile(path string) ([]byte, error) {
	b, _, err := durable.ReadFile(path, MaxText, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
