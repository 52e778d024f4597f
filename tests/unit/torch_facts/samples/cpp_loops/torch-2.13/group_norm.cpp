#include <torch/csrc/inductor/cpp_prefix.h>
extern "C"  void  kernel(const float* in_ptr0,
                       const float* in_ptr1,
                       const float* in_ptr2,
                       float* out_ptr0,
                       float* out_ptr1,
                       float* out_ptr2,
                       float* out_ptr3,
                       float* out_ptr4)
{
    std::atomic<int> inductor_cpu_integer_div_error{0};
    inductor_cpu_integer_div_error_flag = &inductor_cpu_integer_div_error;
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(40L); x0+=static_cast<int64_t>(1L))
        {
            {
                Welford<float> tmp_acc0 = Welford<float>();
                Welford<at::vec::Vectorized<float>> tmp_acc0_vec = Welford<at::vec::Vectorized<float>>();
                Welford<at::vec::Vectorized<float>> masked_tmp_acc0_vec = Welford<at::vec::Vectorized<float>>();
                Welford<at::vec::Vectorized<float>> tmp_acc0_vec_arr[2];
                for (int i = 0; i < 2; i++)
                {
                    tmp_acc0_vec_arr[i] = Welford<at::vec::Vectorized<float>>();
                }
                Welford<float> tmp_acc0_arr[2];
                for (int i = 0; i < 2; i++)
                {
                    tmp_acc0_arr[i] = Welford<float>();
                }
                Welford<at::vec::Vectorized<float>> masked_tmp_acc0_vec_arr[2];
                for (int i = 0; i < 2; i++)
                {
                    masked_tmp_acc0_vec_arr[i] = Welford<at::vec::Vectorized<float>>();
                }
                #pragma omp parallel
                {
                    int tid = omp_get_thread_num();
                    WelfordHelper<float, 4096> scalar_welford_helper0(static_cast<int64_t>(25000L));
                    WelfordHelper<at::vec::Vectorized<float>, 4096> welford_helper0(static_cast<int64_t>(6250L));
                    static WelfordHelper<at::vec::Vectorized<float>, 4096> masked_welford_helper0(static_cast<int64_t>(0L));
                    Welford<at::vec::Vectorized<float>> tmp_acc0_vec_local = Welford<at::vec::Vectorized<float>>();
                    Welford<float> tmp_acc0_local = Welford<float>();
                    Welford<at::vec::Vectorized<float>> masked_tmp_acc0_vec_local = Welford<at::vec::Vectorized<float>>();
                    #pragma omp for
                    for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(50000L); x1+=static_cast<int64_t>(4L))
                    {
                        {
                            if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(50000L)))
                            {
                                auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 50000L*x0), static_cast<int64_t>(4));
                                tmp_acc0_vec_local = welford_combine(tmp_acc0_vec_local, tmp0, &welford_helper0);
                            }
                        }
                    }
                    tmp_acc0_local = welford_combine(tmp_acc0_local, &scalar_welford_helper0);
                    tmp_acc0_vec_local = welford_combine(tmp_acc0_vec_local, &welford_helper0);
                    masked_tmp_acc0_vec_local = welford_combine(masked_tmp_acc0_vec_local, &masked_welford_helper0);
                    tmp_acc0_vec_arr[tid] = tmp_acc0_vec_local;
                    tmp_acc0_arr[tid] = tmp_acc0_local;
                    masked_tmp_acc0_vec_arr[tid] = masked_tmp_acc0_vec_local;
                }
                for (int tid = 0; tid < 2; tid++)
                {
                    tmp_acc0_vec = welford_combine(tmp_acc0_vec, tmp_acc0_vec_arr[tid]);
                }
                for (int tid = 0; tid < 2; tid++)
                {
                    tmp_acc0 = welford_combine(tmp_acc0, tmp_acc0_arr[tid]);
                }
                for (int tid = 0; tid < 2; tid++)
                {
                    masked_tmp_acc0_vec = welford_combine(masked_tmp_acc0_vec, masked_tmp_acc0_vec_arr[tid]);
                }
                tmp_acc0 = welford_combine(tmp_acc0, welford_vec_reduce_all(masked_tmp_acc0_vec));
                tmp_acc0 = welford_combine(tmp_acc0, welford_vec_reduce_all(tmp_acc0_vec));
                out_ptr0[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0.mean);
                out_ptr1[static_cast<int64_t>(x0)] = static_cast<float>(tmp_acc0.m2);
            }
        }
    }
    {
        #pragma GCC ivdep
        for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(8L); x0+=static_cast<int64_t>(1L))
        {
            #pragma GCC ivdep
            for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(5L); x1+=static_cast<int64_t>(1L))
            {
                for(int64_t x2=static_cast<int64_t>(0L); x2<static_cast<int64_t>(2L); x2+=static_cast<int64_t>(4L))
                {
                    {
                        if(C10_LIKELY(x2 >= static_cast<int64_t>(0L) && x2 < static_cast<int64_t>(2L)))
                        {
                            auto tmp0 = out_ptr1[static_cast<int64_t>(x1 + 5L*x0)];
                            auto tmp6 = at::vec::Vectorized<float>::loadu(in_ptr1 + static_cast<int64_t>(x2 + 2L*x1), static_cast<int64_t>(2L));
                            auto tmp9 = out_ptr0[static_cast<int64_t>(x1 + 5L*x0)];
                            auto tmp13 = at::vec::Vectorized<float>::loadu(in_ptr2 + static_cast<int64_t>(x2 + 2L*x1), static_cast<int64_t>(2L));
                            auto tmp1 = static_cast<float>(50000.0);
                            auto tmp2 = tmp0 / tmp1;
                            auto tmp3 = static_cast<float>(1e-05);
                            auto tmp4 = float(tmp2 + tmp3);
                            auto tmp5 = 1 / std::sqrt(tmp4);
                            auto tmp7 = at::vec::Vectorized<float>(tmp5);
                            auto tmp8 = tmp7 * tmp6;
                            auto tmp10 = decltype(tmp9)(-tmp9);
                            auto tmp11 = at::vec::Vectorized<float>(tmp10);
                            auto tmp12 = tmp11 * tmp8;
                            auto tmp14 = tmp12 + tmp13;
                            tmp8.store(out_ptr2 + static_cast<int64_t>(x2 + 2L*x1 + 10L*x0), static_cast<int64_t>(2L));
                            tmp14.store(out_ptr3 + static_cast<int64_t>(x2 + 2L*x1 + 10L*x0), static_cast<int64_t>(2L));
                        }
                    }
                }
            }
        }
    }
    #pragma omp parallel
    {
        int tid = omp_get_thread_num();
        {
            #pragma omp for
            for(int64_t x0=static_cast<int64_t>(0L); x0<static_cast<int64_t>(80L); x0+=static_cast<int64_t>(1L))
            {
                for(int64_t x1=static_cast<int64_t>(0L); x1<static_cast<int64_t>(25000L); x1+=static_cast<int64_t>(4L))
                {
                    {
                        if(C10_LIKELY(x1 >= static_cast<int64_t>(0) && x1 < static_cast<int64_t>(25000L)))
                        {
                            auto tmp0 = at::vec::Vectorized<float>::loadu(in_ptr0 + static_cast<int64_t>(x1 + 25000L*x0), static_cast<int64_t>(4));
                            auto tmp1 = out_ptr2[static_cast<int64_t>(x0)];
                            auto tmp4 = out_ptr3[static_cast<int64_t>(x0)];
                            auto tmp2 = at::vec::Vectorized<float>(tmp1);
                            auto tmp3 = tmp0 * tmp2;
                            auto tmp5 = at::vec::Vectorized<float>(tmp4);
                            auto tmp6 = tmp3 + tmp5;
                            auto tmp7 = at::vec::clamp_min(tmp6, decltype(tmp6)(0));
                            tmp7.store(out_ptr4 + static_cast<int64_t>(x1 + 25000L*x0));
                        }
                    }
                }
            }
        }
    }
    inductor_cpu_integer_div_error_flag = nullptr;
    inductor_cpu_throw_if_integer_div_error(inductor_cpu_integer_div_error);
}
