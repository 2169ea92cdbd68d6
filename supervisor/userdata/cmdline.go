package userdata

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
)

// maxCommandLine bounds /proc/cmdline in bytes. On x86, Linux has at most 2048.
const maxCommandLine = 64 << 10

// commandLine reads answers from the kernel's command line:
//
//	saltern.answers=PATH            a file in the image or on a disk
//	saltern.answers64=BASE64        the answers themselves
//	saltern.join=JOIN-STRING        nothing else is needed
//	saltern.set=KEY:VALUE           one answer; may be repeated
//
// In a VALUE, %XX stands for a byte, such as %20 for a blank, and a plus sign for itself. Every
// user of the machine can read the command line, so a secret is less safe there than elsewhere.
func (p Places) commandLine(_ context.Context, s *search) {
	b, err := os.ReadFile(p.CommandLine)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return
	case err != nil:
		s.endWithFault("", err)
		return
	case len(b) > maxCommandLine:
		s.endWithFault("", fmt.Errorf("is longer than %d bytes", maxCommandLine))
		return
	}

	var set properties
	for word := range strings.FieldsSeq(string(b)) {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "saltern.answers":
			s.answersFile("saltern.answers="+value, value)
			return
		case "saltern.answers64":
			text, ok := fromBase64(value)
			if !ok {
				s.endWithFault(name, errors.New("is not base64"))
				return
			}
			s.document(name, text, oursAlone)
			return
		case "saltern.join":
			set.setProperty(name, "join", value)
		case "saltern.set":
			setWord(&set, value)
		}
	}

	s.properties(&set)
}

// setWord reads one answer from word, the KEY:VALUE of a saltern.set.
func setWord(set *properties, word string) {
	key, encoded, ok := strings.Cut(word, ":")
	if !ok {
		set.addFault("saltern.set="+key, errors.New("is not KEY:VALUE"))
		return
	}
	name := "saltern.set=" + key
	value, err := url.PathUnescape(encoded)
	if err != nil {
		set.addFault(name, errors.New("holds a percent sign without two hexadecimal digits; "+
			"a percent sign itself is %25"))
		return
	}
	set.setProperty(name, key, value)
}

// answersFile reads a file that the command line names.
func (s *search) answersFile(name, path string) {
	if !filepath.IsAbs(path) {
		s.endWithFault(name, errors.New("is not an absolute path"))
		return
	}
	text, err := readFile(path, MaxGiven)
	if err == nil && text == nil {
		err = errors.New("there is no such file")
	}
	if err != nil {
		s.endWithFault(name, err)
		return
	}
	s.document(name, text, oursAlone)
}
