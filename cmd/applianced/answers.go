package main

import (
	"errors"
	"fmt"
	"io"
	"os"

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
	text, err := io.ReadAll(io.LimitReader(f, userdata.MaxText+1))
	if err != nil {
		return nil, err
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
