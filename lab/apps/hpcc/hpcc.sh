#!/bin/sh
# Runs the HPC Challenge as one rank of a job, with a problem of order N, and prints its results.
#
# Words: N RANKS. The program reads hpccinf.txt and writes hpccoutf.txt, both in the working
# directory and only on rank 0. The grid of ranks is as square as their number allows, with fewer
# rows than columns.
set -eu
[ $# -eq 2 ] || { echo 'error: which order, and how many ranks?' >&2; exit 2; }
order=$1 ranks=$2
rank=${OMPI_COMM_WORLD_RANK:-${PMIX_RANK:-${PMI_RANK:-${SLURM_PROCID:-0}}}}

[ "$rank" = 0 ] || exec hpcc

rows=1 one=1
while [ $((one * one)) -le "$ranks" ]; do
    if [ $((ranks % one)) -eq 0 ]; then rows=$one; fi
    one=$((one + 1))
done

rm -f hpccoutf.txt
cat > hpccinf.txt <<END
HPLinpack benchmark input file
made by hpcc.sh
HPL.out      output file name (if any)
8            device out (6=stdout,7=stderr,file)
1            # of problems sizes (N)
$order       Ns
1            # of NBs
96           NBs
0            PMAP process mapping (0=Row-,1=Column-major)
1            # of process grids (P x Q)
$rows        Ps
$((ranks / rows)) Qs
16.0         threshold
1            # of panel fact
2            PFACTs (0=left, 1=Crout, 2=Right)
1            # of recursive stopping criterium
4            NBMINs (>= 1)
1            # of panels in recursion
2            NDIVs
1            # of recursive panel fact.
1            RFACTs (0=left, 1=Crout, 2=Right)
1            # of broadcast
1            BCASTs (0=1rg,1=1rM,2=2rg,3=2rM,4=Lng,5=LnM)
1            # of lookahead depth
1            DEPTHs (>=0)
2            SWAP (0=bin-exch,1=long,2=mix)
64           swapping threshold
0            L1 in (0=transposed,1=no-transposed) form
0            U  in (0=transposed,1=no-transposed) form
1            Equilibration (0=no,1=yes)
8            memory alignment in double (> 0)
##### This line (no. 32) is ignored (it serves as a separator). ######
0            Number of additional problem sizes for PTRANS
1200         values of N
0            number of additional blocking sizes for PTRANS
40           values of NB
END
hpcc
cat hpccoutf.txt
