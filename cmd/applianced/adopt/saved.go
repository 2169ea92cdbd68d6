package adopt

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// savedFile is the file of saved targets, jobs and schedules, beside the keys of minions.
const savedFile = "saved.saltern"

// savedHead is how such a file begins. The masters check the rest, and set a damaged one aside.
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
	if err == nil && !bytes.HasPrefix(text, []byte(savedHead)) {
		err = errors.New("it is no file of saved objects")
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
