package repos

import (
	"errors"
	"fmt"
	"slices"

	"saltern/internal/control"
	"saltern/master/internal/git"
)

// faults maps kinds of git faults to the faults that the master reports. All other kinds are faults
// of the local copy, which are reported as a fault of files or of pillars.
func faults() map[git.Kind]control.Fault {
	return map[git.Kind]control.Fault{
		git.Unreachable: control.GitAwayFault, git.Authentication: control.GitLoginFault, git.HostKey: control.GitHostKeyFault,
		git.RefGone: control.GitRefFault, git.TooLarge: control.GitSizeFault,
	}
}

// reportFaults reports the current faults of all remotes, and the end of faults that it reported
// earlier.
func (s *Service) reportFaults() {
	s.telling.Lock() // so that no goroutine reports an older state last
	defer s.telling.Unlock()
	found := map[control.Fault][]string{control.GitPillarFault: nil, control.GitFilesFault: nil}
	for _, fault := range faults() {
		found[fault] = nil
	}

	for _, r := range s.store.Repositories() {
		st := r.Status()
		if st.Fault == nil {
			continue
		}

		files, pillars := s.usesOf(r)
		text := fmt.Sprintf("%s (%s): %s", st.URL, useWords(files, pillars), st.Fault.Text)
		if fault, ok := faults()[st.Fault.Kind]; ok {
			found[fault] = append(found[fault], text)
			continue
		}

		if files {
			found[control.GitFilesFault] = append(found[control.GitFilesFault], text)
		}

		if pillars {
			found[control.GitPillarFault] = append(found[control.GitPillarFault], text)
		}
	}

	for fault, texts := range found {
		s.cfg.Problem(fault, joined(texts))
	}
}

// joined returns an error that contains the first text and the number of further texts. It returns
// nil if there are no texts.
func joined(texts []string) error {
	switch len(texts) {
	case 0:
		return nil
	case 1:
		return errors.New(texts[0])
	}
	return fmt.Errorf("%s (and %d more)", texts[0], len(texts)-1)
}

// usesOf reports whether a repository is used for files, and whether it is used for pillars.
func (s *Service) usesOf(r *git.Repository) (files, pillars bool) {
	return s.files != nil && slices.Contains(s.files.Repositories(), r), s.pillars != nil &&
		slices.Contains(s.pillars.Repositories(), r)
}

func useWords(files, pillars bool) string {
	switch {
	case files && pillars:
		return "files and pillars"
	case pillars:
		return "pillars"
	}
	return "files"
}
