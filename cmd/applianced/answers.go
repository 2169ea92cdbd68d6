package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"

	"github.com/spf13/cobra"

	"saltern/master/conf"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/userdata"
)

// readAnswers reads a file of answers.
func readAnswers(path string) (*setup.Answers, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	text, err := io.ReadAll(io.LimitReader(f, userdata.MaxGiven+1))
	if err != nil {
		return nil, err
	}
	if len(text) > userdata.MaxGiven {
		return nil, fmt.Errorf("%s: larger than %d bytes", path, userdata.MaxGiven)
	}

	a, err := userdata.Parse(text)
	if errors.Is(err, userdata.ErrOther) {
		err = errors.New("holds no answers for the set-up")
	}

	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}

	return a, nil
}

// checkAnswers checks a file of answers, which may be meant for another machine. ours is false if
// the file has no answers.
func checkAnswers(path string, out, errs io.Writer) (ours bool, err error) {
	text, err := os.ReadFile(path)
	if err != nil || len(text) > userdata.MaxGiven {
		return false, nil // the caller reads the file again and reports the error
	}

	plain := bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if !answersForm.Match(plain) && (len(plain) != len(text) || !userdata.IsPacked(text)) {
		return false, nil
	}

	a, err := userdata.Parse(text)
	if errors.Is(err, userdata.ErrOther) {
		return true, fmt.Errorf("%s: holds no answers for the set-up", path)
	}

	if err == nil {
		v := setup.Validate(*a, setup.Anywhere(*a), setup.Base{})
		if err = setup.Faults(v.Faults); err == nil {
			notes, err := checkAnswered(v.Answers, path, text, errs)
			if err != nil {
				return true, err
			}
			fmt.Fprintf(out, "%s is right: answers to %s cluster %s\n", path, v.Answers.Mode, v.Answers.Cluster)
			printNotes(out, notes)
			return true, nil
		}
	}

	return true, fmt.Errorf("%s: %w", path, err)
}

// checkOptionsOf checks the master's options in valid answers. The supervisor also checks whether
// the options fit its machine.
func checkOptionsOf(a *setup.Answers, path string, errs io.Writer) error {
	v := setup.Validate(*a, setup.Anywhere(*a), setup.Base{})
	if len(v.Faults) > 0 {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	_, err = checkAnswered(v.Answers, path, text, errs)
	return err
}

// checkAnswered checks the master's options in complete answers, and returns notes about options
// that have no effect.
func checkAnswered(a setup.Answers, path string, text []byte, errs io.Writer) ([]conf.Note, error) {
	rendered, err := setup.Render(a, setup.Base{})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	s, err := settings.Parse(rendered, path, a.Node)
	if err != nil {
		return nil, err
	}
	return checkMaster(s, optionsOf{path, text, inAnswers()}, errs)
}

// answersForm matches a line that only files of answers contain. An appliance.yaml has none of
// these keys.
var answersForm = regexp.MustCompile(`(?m)^(#saltern|#cloud-config|saltern:|mode:|join:|cluster_id:|[{ ]*"?(mode|join)"?:)`)

func schemaCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "schema",
		Short:   "Print the JSON Schema of a file of answers",
		Args:    cobra.NoArgs,
		Example: "  applianced config schema > answers.schema.json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return writeJSON(cmd.OutOrStdout(), setup.Schema())
		},
	}
}
