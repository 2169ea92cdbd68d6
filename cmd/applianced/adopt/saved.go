package adopt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// savedFile is the file of saved targets, jobs and schedules, beside the keys of minions.
const savedFile = "saved.saltern"

// savedHead is how such a file begins. The first line ends in the sha256 of the others.
const savedHead = "# Saved targets, jobs and schedules"

// planSaved plans the saved targets, jobs and schedules of a tree that another Saltern has exported. A
// node that has saved objects keeps them, also with Force: its masters would take the file for an older
// version of theirs.
func (p *Plan) planSaved(_ context.Context, c *confs) error {
	from := path.Join(minionsOf(c), savedFile)
	text, err := p.tree.readFile(from, maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = checkSaved(text)
	}
	if err != nil {
		p.countOf(Saved).Left++
		p.addNotes(Note{File: from, Text: fmt.Sprintf("left out: %v", err)})
		return nil
	}

	it := &item{
		kind:  Saved,
		to:    path.Join("pki", savedFile),
		text:  text,
		size:  int64(len(text)),
		mode:  0o640,
		group: true,
	}
	same, _, err := p.compare(it)
	switch {
	case err != nil:
		return fmt.Errorf("compare with what is here: %w", err)
	case same:
		p.countOf(Saved).Same++
		return nil
	}

	own, err := p.hasSaved()
	if err != nil {
		return err
	}
	if own {
		p.countOf(Saved).Left++
		p.addNotes(Note{
			File: from,
			Text: "left out: saved objects are here already; to add these, salt-run saved.export at the other master, " +
				"and salt-run saved.import here",
		})
		return nil
	}

	p.countOf(Saved).New++
	p.compareItem(it)
	return nil
}

// checkSaved returns an error for what is no file of saved objects, or a damaged one, which the masters
// would set aside.
func checkSaved(text []byte) error {
	head, rest, _ := bytes.Cut(text, []byte("\n"))
	_, sum, ok := bytes.Cut(head, []byte(", sha256 "))
	if !ok || !bytes.HasPrefix(head, []byte(savedHead)) {
		return errors.New("it is no file of saved objects")
	}
	if want := sha256.Sum256(rest); string(sum) != hex.EncodeToString(want[:]) {
		return errors.New("it is damaged: its content does not have the sha256 of its first line; export it again")
	}
	return nil
}

// hasSaved reports whether this node has saved objects, or older versions of them.
func (p *Plan) hasSaved() (bool, error) {
	if p.node == nil {
		return false, nil
	}
	names, err := p.node.listNames("pki")
	if err != nil {
		return false, fmt.Errorf("look for saved objects: %w", err)
	}
	for _, name := range names {
		if name == savedFile || strings.HasPrefix(name, "."+savedFile+".") {
			return true, nil
		}
	}
	return false, nil
}

// saved writes the saved objects, which another Saltern imports. Salt's master ignores the file.
func (x *exporter) saved(context.Context) error {
	text, err := x.node.readFile(path.Join("pki", savedFile), maxSaved)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return x.writeText(path.Join(exportPKI, savedFile), text, 0o600)
}
