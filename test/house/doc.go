// Package house measures how the code is divided and holds what was reached:
// sizes of the two large packages, who holds whom, how often a small thing is
// written. The limits may only go down; the numbers of today are printed by
//
//	go test -v -run TestMeasures ./test/house/
package house
