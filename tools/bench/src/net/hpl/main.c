// Linpack of HPC Challenge alone, with its own input file.
#include "hpl.h"

int HPL_main(int, char **, HPL_RuntimeData *, int *);

// Called where the input file is wrong.
int HPCC_Defaults() {
    MPI_Abort(MPI_COMM_WORLD, 1);
    return 1;
}

int main(int count, char **words) {
    HPL_RuntimeData data;
    int failure = 0;
    MPI_Init(&count, &words);
    HPL_main(count, words, &data, &failure);
    MPI_Finalize();
    return failure;
}
