//go:build !linux

package bench

import "errors"

func processCPU(int) (float64, error) { return 0, errors.ErrUnsupported }

func listener(uint16) (pid int, program string) { return 0, "" }
