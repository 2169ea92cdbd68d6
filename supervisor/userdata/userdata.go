// Package userdata looks for answers to the set-up that were given with the machine, so that the
// set-up needs no wizard:
//
//	variables of the environment, of a container                    environment.go
//	saltern.answers= and others on the kernel command line          cmdline.go
//	a disk or directory labelled cidata (NoCloud)                   nocloud.go
//	user-data of EC2, by IMDSv2 only                                ec2.go
//	properties of an OVF environment                                ovf.go
//	VMware's guestinfo                                              guestinfo.go
//	a file, /etc/saltern/answers.yaml
//
// Only the first source that has answers for the set-up is used. If its answers are wrong, that is
// an error, and the search ends. Texts for other programs (cloud-init, Ignition, a script) and
// unreadable texts are skipped; [setup.Given] names them with the reason.
//
// Properties, words of the command line and variables are text. Only the type of the answer decides
// how the text is read (properties.go). Documents are YAML, in all packings that cloud-init
// supports (document.go, mime.go).
package userdata

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"saltern/internal/durable"
	"saltern/internal/printable"
	"saltern/supervisor/internal/imds"
	"saltern/supervisor/setup"
)

// MaxGiven bounds a text in bytes, before and after it is unpacked, including the parts for other
// programs.
const MaxGiven = 1 << 20

// maxText bounds answers in bytes. EC2's limit for user-data is 16 KiB.
const maxText = 64 << 10

// Bounds of the descriptions of unused texts: their number, and the bytes of each.
const (
	maxUnused     = 12
	maxUnusedText = 300
)

// source is one kind of place where answers may be.
type source struct {
	name string // description of the source: "the cidata disk"
	look func(context.Context, *search)
}

// Places says where the sources look for answers. If a field is empty, its source is skipped.
type Places struct {
	// Environment returns an environment variable, as os.Getenv does. This source comes first, so
	// that a container never uses the answers of its host.
	Environment func(name string) string
	CommandLine string // path of /proc/cmdline
	Seeds       []string
	Devices     string // path of the folder /dev/disk/by-label
	EC2         string // address of the metadata service, http://169.254.169.254
	DMI         string // path of /sys/class/dmi/id, which shows whether the machine is on EC2 or VMware
	OVF         string // directory of a mounted OVF disk
	GuestInfo   []string
	File        string
	Log         *slog.Logger
}

// seedFolder is where saltern-seed.service, which may mount disks, copies what it has found on
// them.
const seedFolder = "/run/saltern-seed"

// Default returns the places to search on a real machine.
func Default(log *slog.Logger) Places {
	return Places{
		Environment: os.Getenv,
		CommandLine: "/proc/cmdline",
		Seeds:       []string{"/var/lib/cloud/seed/nocloud", seedFolder},
		Devices:     "/dev/disk/by-label",
		EC2:         imds.Address,
		DMI:         "/sys/class/dmi/id",
		OVF:         seedFolder,
		GuestInfo:   []string{"vmware-rpctool", "vmtoolsd"},
		File:        "/etc/saltern/answers.yaml",
		Log:         log,
	}
}

// Look reads the sources in their order until one has answers for the set-up. If none has,
// Given.Answers is nil. An error means that the answers of a source are wrong. It may also mean
// that a source could not be read, but only if no other source has answers.
func (p Places) Look(ctx context.Context) (setup.Given, error) {
	s := &search{log: p.Log}
	for _, source := range p.sources() {
		s.source = source.name
		source.look(ctx, s)
		if s.answers != nil || s.fault != nil {
			break
		}
	}

	given := setup.Given{Answers: s.answers, From: s.source, Unused: s.unused}
	switch {
	case s.fault != nil:
		return given, s.fault
	case s.answers != nil:
		p.Log.Info("answers for the set-up were given with this machine", "path", s.source)
		return given, nil
	case s.unreached != nil:
		given.From = s.unreachedAt
		return given, s.unreached
	}

	given.From = ""
	return given, nil
}

func (p Places) sources() (out []source) {
	add := func(use bool, name string, look func(context.Context, *search)) {
		if use {
			out = append(out, source{name, look})
		}
	}
	add(p.Environment != nil, "the environment", p.environment)
	add(p.CommandLine != "", "the kernel command line", p.commandLine)
	add(len(p.Seeds) > 0 || p.Devices != "", "the cidata disk", p.noCloud)
	add(p.EC2 != "", "EC2 user-data", p.searchEC2)
	add(p.OVF != "" || p.Devices != "", "the OVF environment", p.searchOVF)
	add(len(p.GuestInfo) > 0, "VMware guestinfo", p.guestInfo)
	add(p.File != "", p.File, p.searchFile)
	return out
}

// searchFile reads the file of answers on this machine.
func (p Places) searchFile(_ context.Context, s *search) {
	text, err := readFile(p.File, MaxGiven)
	if err != nil {
		s.endWithFault("", err)
		return
	}
	s.document("", text, oursAlone)
}

// search collects what the sources return. It ends when a source has answers or a fault.
type search struct {
	log    *slog.Logger
	source string // name of the source that is being read

	answers *setup.Answers
	fault   error // why the answers that were found are wrong

	// unreached is the error of the first source that could not be read. Look returns it only if no
	// other source has answers.
	unreached   error
	unreachedAt string

	unused []string
}

// decided reports whether the search has ended.
func (s *search) decided() bool { return s.answers != nil || s.fault != nil }

// document looks for answers in a text of a source. name is the text's name within the source, such
// as a file name. It is "" if the source has only one text.
func (s *search) document(name string, text []byte, whose owner) {
	if len(bytes.TrimSpace(text)) == 0 {
		return // an empty text is not worth a note
	}

	answers, err := findAnswers(text, whose)
	switch {
	case errors.Is(err, ErrOther) && whose == oursAlone:
		s.endWithFault(name, errors.New("holds no answers for the set-up"+reason(err)))
	case errors.Is(err, ErrOther):
		s.noteForeign(name, reason(err))
	case err != nil:
		s.endWithFault(name, err)
	default:
		s.answers = answers
	}
}

// properties decodes answers that a source sets one at a time.
func (s *search) properties(set *properties) {
	answers, err := set.result()
	if err != nil {
		s.endWithFault("", err)
		return
	}
	s.answers = answers
}

// endWithFault ends the search: answers for us were found and are wrong.
func (s *search) endWithFault(name string, err error) {
	s.fault = fmt.Errorf("%s: %w", s.nameAt(name), err)
}

// unreachable records a source that cannot be read. The search continues, because another source
// may have answers.
func (s *search) unreachable(name string, err error) {
	if s.unreached == nil {
		s.unreached, s.unreachedAt = fmt.Errorf("%s: %w", s.nameAt(name), err), s.source
	}
	s.noteUnused(s.nameAt(name) + " cannot be read: " + err.Error())
}

// noteForeign records a text for another program. why begins with a colon, or is empty.
func (s *search) noteForeign(name, why string) {
	s.noteUnused(s.nameAt(name) + " was given and holds no answers for the set-up" + why)
}

// noteUnused records and logs a sentence about something that is not used.
func (s *search) noteUnused(sentence string) {
	sentence = printable.Brief(sentence, maxUnusedText)
	s.log.Info("what was given with this machine is not used", "path", s.source, "reason", sentence)
	if len(s.unused) < maxUnused {
		s.unused = append(s.unused, sentence)
	}
}

// nameAt returns the full name of a text of the present source.
func (s *search) nameAt(name string) string {
	if name == "" {
		return s.source
	}
	return s.source + ", " + name
}

// reason returns the text of an ErrOther without the ErrOther itself.
func reason(err error) string {
	text, ok := strings.CutPrefix(err.Error(), ErrOther.Error())
	if !ok {
		return ""
	}
	return text
}

// readFile reads a regular file of at most limit bytes. It returns no bytes if the file is missing.
func readFile(path string, limit int64) ([]byte, error) {
	b, _, err := durable.ReadFile(path, limit, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}
